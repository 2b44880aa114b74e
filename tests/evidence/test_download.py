"""Downloads from a server on this machine: cut connections, wrong files, unsafe archives."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from evidence.download import download, fetch_plates, plates_of, unpack
from evidence.errors import DataError

SHARED = Path(__file__).parents[3] / "shared" / "data" / "bbbc021"
pytestmark = [pytest.mark.loopback, pytest.mark.allow_hosts(["127.0.0.1"])]


class Handler(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}
    cuts: ClassVar[list[int]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(f"{self.path} {self.headers.get('Range', '')}".strip())
        body = self.files.get(self.path)
        if body is None:
            self.send_error(404)
            return
        given = self.headers.get("Range")
        start = int(given.removeprefix("bytes=").rstrip("-")) if given else 0
        if start >= len(body) and given:
            self.send_error(416)
            return
        self.send_response(206 if given else 200)
        if given:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        stop = self.cuts.pop(0) if self.cuts else len(body)
        self.wfile.write(body[start:stop])

    def log_message(self, *_: object) -> None:
        """Silent."""


@pytest.fixture
def server(socket_enabled) -> Iterator[str]:
    Handler.files, Handler.cuts, Handler.asked = {}, [], []
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


BODY = bytes(range(256)) * 40


def test_a_cut_connection_goes_on_where_it_stopped(server: str, tmp_path: Path):
    Handler.files, Handler.cuts = {"/a": BODY}, [4000, 7000]
    digest = hashlib.sha256(BODY).hexdigest()
    path = download(f"{server}/a", tmp_path / "in" / "a", sha256=digest, size=len(BODY), backoff_s=0)
    assert path.read_bytes() == BODY
    assert Handler.asked == ["/a", "/a bytes=4000-", "/a bytes=7000-"]
    download(f"{server}/a", path, sha256=digest)
    assert len(Handler.asked) == 3


def test_what_came_is_kept_for_the_next_run(server: str, tmp_path: Path):
    Handler.files, Handler.cuts = {"/a": BODY}, [4000, 5000]
    with pytest.raises(DataError, match="not whole after 2 attempts.*run again to go on"):
        download(f"{server}/a", tmp_path / "a", attempts=2, backoff_s=0)
    assert not (tmp_path / "a").exists()
    assert download(f"{server}/a", tmp_path / "a", backoff_s=0).read_bytes() == BODY
    assert Handler.asked[-1] == "/a bytes=5000-"


def test_a_wrong_file_never_gets_the_name(server: str, tmp_path: Path):
    Handler.files = {"/a": BODY}
    with pytest.raises(DataError, match="expected 5 bytes, got 10240"):
        download(f"{server}/a", tmp_path / "a", size=5)
    with pytest.raises(DataError, match="expected sha256 00"):
        download(f"{server}/a", tmp_path / "a", sha256="00")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match="404"):
        download(f"{server}/other", tmp_path / "a")
    with pytest.raises(DataError, match="http"):
        download("file:///etc/passwd", tmp_path / "a")


def zip_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "C:\\x"])
def test_an_archive_that_would_leave_its_folder_is_refused(tmp_path: Path, name: str):
    (tmp_path / "a.zip").write_bytes(zip_of({"good": b"1", name: b"2"}))
    with pytest.raises(DataError, match="not unpacked"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a.zip"]


def test_links_and_bombs_are_refused_and_a_plain_tree_is_unpacked(tmp_path: Path):
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr(link, "/etc/passwd")
    with pytest.raises(DataError, match="link"):
        unpack(tmp_path / "a.zip", tmp_path / "out")
    (tmp_path / "b.zip").write_bytes(zip_of({"p/a.tif": BODY}))
    with pytest.raises(DataError, match="more than 100"):
        unpack(tmp_path / "b.zip", tmp_path / "out", max_bytes=100)
    assert (unpack(tmp_path / "b.zip", tmp_path / "out") / "p" / "a.tif").read_bytes() == BODY
    with pytest.raises(DataError, match="exists"):
        unpack(tmp_path / "b.zip", tmp_path / "out")


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the eight real TIFFs at {SHARED}")
def test_a_plate_of_real_tiffs_is_fetched_and_read(server: str, tmp_path: Path):
    from evidence.bbbc021_plates import Plates
    from evidence.contracts import CaseFile
    from evidence.microscopy_cases import make_case

    plate = "Week2_24381"
    files = sorted((SHARED / "fullfields" / plate).iterdir())
    assert len(files) == 8
    body = zip_of({f"{plate}/{p.name}": p.read_bytes() for p in files})
    import gzip

    Handler.files = {
        f"/BBBC021_v1_images_{plate}.zip": body,
        "/BBBC021_v1_image.csv": gzip.decompress((SHARED / "BBBC021_v1_image.csv.gz").read_bytes()),
        "/BBBC021_v1_moa.csv": (SHARED / "BBBC021_v1_moa.csv").read_bytes(),
    }
    Handler.cuts = [10**9, 10**9, 5_000_000]
    query = {"field": f"{plate}/B02/1", "second": f"{plate}/B02/2"}
    from evidence.microscopy_cases import Query

    case = make_case("field-01", ("a", "b"), Query(**query))
    frozen = {"queries": {"field-01": query}, "pool": [], "controls": []}
    case_file = CaseFile(version=1, setting="microscopy", title="t", data={}, seed=1, frozen=frozen, cases=(case,))
    assert plates_of(case_file) == (plate,)
    (path,) = fetch_plates(case_file, tmp_path, base=f"{server}/", backoff_s=0)
    assert Handler.asked[-1] == f"/{path.name} bytes=5000000-"
    zipped, folder = Plates.open(tmp_path), Plates.open(SHARED)
    fields = zipped.present()
    assert [f.id for f in fields] == [query["field"], query["second"]]
    assert [zipped.content(f) for f in fields] == [folder.content(f) for f in fields]
    asked = len(Handler.asked)
    assert fetch_plates(case_file, tmp_path, base=f"{server}/") == (path,)
    assert len(Handler.asked) == asked
    path.write_bytes(body[:-1])
    with pytest.raises(DataError, match="expected sha256"):
        fetch_plates(case_file, tmp_path, base=f"{server}/")


def test_an_error_page_is_not_kept_as_a_plate(server: str, tmp_path: Path):
    from evidence.contracts import CaseFile
    from evidence.microscopy_cases import Query, make_case

    for table in ("BBBC021_v1_image.csv", "BBBC021_v1_moa.csv"):
        (tmp_path / table).write_text("")
    Handler.files = {"/BBBC021_v1_images_P.zip": b"<html>busy</html>"}
    query = {"field": "P/B02/1", "second": None}
    case = make_case("field-01", ("a", "b"), Query(**query))
    frozen = {"queries": {"field-01": query}, "pool": [], "controls": []}
    case_file = CaseFile(version=1, setting="microscopy", title="t", data={}, seed=1, frozen=frozen, cases=(case,))
    with pytest.raises(DataError, match="expected a zip"):
        fetch_plates(case_file, tmp_path, base=f"{server}/", backoff_s=0)
    assert not list(tmp_path.glob("*.zip*"))
