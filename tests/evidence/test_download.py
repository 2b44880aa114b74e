"""Downloads against a loopback server that cuts the connection, serves a wrong file, and answers with error pages."""

import hashlib
import http.server
import io
import tarfile
import threading
import zipfile

import pytest

from evidence import datasets
from evidence.download import download, unpack
from evidence.errors import DataError
from evidence.remote import Remote

pytestmark = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"]), pytest.mark.usefixtures("socket_enabled")]
CONTENT = bytes(range(256)) * 4000
SHA = hashlib.sha256(CONTENT).hexdigest()


class Files:
    """What the server has and how it misbehaves: `cut` answers stop after half of what is left."""

    def __init__(self, content=CONTENT, *, cut=0, status=200, ranges=True):
        self.content, self.cut, self.status, self.ranges = content, cut, status, ranges
        self.asked: list[str | None] = []


@pytest.fixture
def serve():
    servers = []

    def start(files: Files) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked = self.headers.get("Range")
                files.asked.append(asked)
                start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and files.ranges else 0
                body = files.content[start:]
                self.send_response(files.status if files.status != 200 else 206 if start else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if files.cut:
                    files.cut -= 1
                    body = body[: len(body) // 2]
                    self.close_connection = True
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}/file"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_cut_download_goes_on_where_it_stopped(serve, tmp_path):
    files = Files(cut=3)
    path = download(Remote(serve(files), "x.bin", SHA, len(CONTENT)), tmp_path, wait_s=0)
    assert path.read_bytes() == CONTENT
    assert files.asked == [None, "bytes=512000-", "bytes=768000-", "bytes=896000-"]
    assert [p.name for p in tmp_path.iterdir()] == ["x.bin"]


def test_a_killed_download_is_resumed_by_the_next_call(serve, tmp_path):
    files = Files(cut=99)
    remote = Remote(serve(files), "x.bin", SHA)
    with pytest.raises(DataError, match="no whole file after 5 attempts"):
        download(remote, tmp_path, wait_s=0)
    files.cut = 0
    assert download(remote, tmp_path, wait_s=0).read_bytes() == CONTENT
    assert files.asked[-1].startswith("bytes=")


def test_a_server_without_ranges_starts_again(serve, tmp_path):
    files = Files(cut=1, ranges=False)
    assert download(Remote(serve(files), "x.bin", SHA), tmp_path, wait_s=0).read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [CONTENT[:-1], CONTENT[:-1] + b"x", b"<html>error</html>"])
def test_a_wrong_file_is_refused_and_not_kept(serve, tmp_path, wrong):
    remote = Remote(serve(Files(wrong)), "x.bin", SHA, len(CONTENT))
    with pytest.raises(DataError, match="nothing was kept"):
        download(remote, tmp_path, wait_s=0)
    assert list(tmp_path.iterdir()) == []


def test_an_error_page_is_never_saved(serve, tmp_path):
    with pytest.raises(DataError, match="the server answered 404"):
        download(Remote(serve(Files(b"not here", status=404)), "x.bin"), tmp_path, wait_s=0)
    assert list(tmp_path.iterdir()) == []


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def test_a_data_set_is_downloaded_unpacked_and_checked(serve, tmp_path, monkeypatch):
    files = Files(zipped({"norman/perturb_processed.h5ad": b"cells", "norman/other": b"no"}))
    remote = Remote(serve(files), "norman.zip", members={"norman/perturb_processed.h5ad": "perturb_processed.h5ad"})
    sha = hashlib.sha256(b"cells").hexdigest()
    entry = datasets.Dataset(
        name="norman", title="t", source="s", licence="l", size="1", folder="norman",
        files={"perturb_processed.h5ad": sha}, card={}, how="h", remotes=(remote,),
    )  # fmt: skip
    monkeypatch.setattr(datasets, "CATALOGUE", {"norman": entry})
    monkeypatch.setattr(datasets, "user_cache_dir", lambda name: str(tmp_path))
    folder = datasets.fetch("norman")
    assert [p.name for p in folder.iterdir()] == ["perturb_processed.h5ad"]
    assert datasets.fetch("norman") == folder
    assert len(files.asked) == 1
    (folder / "perturb_processed.h5ad").unlink()
    files.content = zipped({"norman/perturb_processed.h5ad": b"other cells"})
    with pytest.raises(DataError, match="expected sha256"):
        datasets.fetch("norman")
    assert not (folder / "perturb_processed.h5ad").exists()


def test_unpacking_never_leaves_the_folder(tmp_path):
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({"../evil": b"x", "good": b"y"}))
    with pytest.raises(DataError, match="would leave"):
        unpack(archive, {"good": "../evil"}, tmp_path / "out")
    assert unpack(archive, {"../evil": "fine"}, tmp_path / "out")[0].read_bytes() == b"x"
    with pytest.raises(DataError, match="expected a member 'absent'"):
        unpack(archive, {"absent": "x"}, tmp_path / "out")
    with pytest.raises(DataError, match="expected at most 0"):
        unpack(archive, {"good": "x"}, tmp_path / "out", max_bytes=0)


def test_a_link_in_a_tar_archive_is_no_file(tmp_path):
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        link = tarfile.TarInfo("data")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        opened.addfile(link)
        info = tarfile.TarInfo("plain")
        info.size = 1
        opened.addfile(info, io.BytesIO(b"z"))
    with pytest.raises(DataError, match="expected a member 'data'"):
        unpack(archive, {"data": "x"}, tmp_path / "out")
    assert unpack(archive, {"plain": "x"}, tmp_path / "out")[0].read_bytes() == b"z"


def test_what_is_no_archive_is_said(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"<html>")
    with pytest.raises(DataError, match="expected a zip or tar archive"):
        unpack(tmp_path / "a.zip", {"x": "x"}, tmp_path)
