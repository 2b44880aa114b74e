"""Looking for garbage in cycles less often, where thousands of objects live on that are none."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def rare_collection() -> Iterator[None]:
    """Look for garbage in cycles less often while this lasts, and never in what was there before."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
