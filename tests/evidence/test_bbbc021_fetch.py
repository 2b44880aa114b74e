"""Plates of BBBC021 from a server on this machine: cut connections, wrong files."""

from __future__ import annotations

import gzip
import io
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from evidence.bbbc021_fetch import fetch_plates, plates_of
from evidence.bbbc021_plates import Plates
from evidence.contracts import CaseFile
from evidence.errors import DataError
from evidence.microscopy_cases import Query, make_case

pytest.importorskip("skimage", reason="needs the images extra: pip install -e '.[images]'")

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


def zip_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


@pytest.mark.skipif(not SHARED.is_dir(), reason=f"needs the eight real TIFFs at {SHARED}")
def test_a_plate_of_real_tiffs_is_fetched_and_read(server: str, tmp_path: Path):
    plate = "Week2_24381"
    files = sorted((SHARED / "fullfields" / plate).iterdir())
    assert len(files) == 8
    body = zip_of({f"{plate}/{p.name}": p.read_bytes() for p in files})
    Handler.files = {
        f"/BBBC021_v1_images_{plate}.zip": body,
        "/BBBC021_v1_image.csv": gzip.decompress((SHARED / "BBBC021_v1_image.csv.gz").read_bytes()),
        "/BBBC021_v1_moa.csv": (SHARED / "BBBC021_v1_moa.csv").read_bytes(),
    }
    Handler.cuts = [10**9, 10**9, 5_000_000]
    query = {"field": f"{plate}/B02/1", "second": f"{plate}/B02/2"}
    case = make_case("field-01", ("a", "b"), Query(**query))
    frozen = {"queries": {"field-01": query}, "pool": [], "controls": []}
    case_file = CaseFile(version=1, setting="microscopy", title="t", data={}, seed=1, frozen=frozen, cases=(case,))
    assert plates_of(case_file) == (plate,)
    (path,) = fetch_plates(case_file, tmp_path, base=f"{server}/", wait_s=0)
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
    for table in ("BBBC021_v1_image.csv", "BBBC021_v1_moa.csv"):
        (tmp_path / table).write_text("")
    Handler.files = {"/BBBC021_v1_images_P.zip": b"<html>busy</html>"}
    query = {"field": "P/B02/1", "second": None}
    case = make_case("field-01", ("a", "b"), Query(**query))
    frozen = {"queries": {"field-01": query}, "pool": [], "controls": []}
    case_file = CaseFile(version=1, setting="microscopy", title="t", data={}, seed=1, frozen=frozen, cases=(case,))
    with pytest.raises(DataError, match="expected a zip"):
        fetch_plates(case_file, tmp_path, base=f"{server}/", wait_s=0)
    assert not list(tmp_path.glob("*.zip*"))
