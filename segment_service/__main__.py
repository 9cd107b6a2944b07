"""``python -m segment_service --config FILE``: one segment store, until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pravega_common.errors import PravegaError
from pravega_common.runtime.lasting_imports import lasting_imports


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="segment_service", description="One segment store.")
    parser.add_argument("--config", type=Path, required=True, help="settings, as in conf/segment-store.toml")
    parser.add_argument("--ready-file", type=Path, help="written once the store serves")
    options = parser.parse_args(arguments)
    with lasting_imports():
        from segment_service.process import run_segment_store
    try:
        run_segment_store(options.config, options.ready_file)
    except PravegaError as error:
        sys.exit(f"segment store: {error}")


if __name__ == "__main__":
    main()
