"""Runs a controller: ``python -m controller_service --config FILE``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pravega_common.errors import PravegaError
from pravega_common.runtime.lasting_imports import lasting_imports


def main() -> int:
    parser = argparse.ArgumentParser(prog="controller_service", description="One controller of a stream store.")
    parser.add_argument("--config", type=Path, required=True, help="settings; conf/controller.toml lists every key")
    arguments = parser.parse_args()
    with lasting_imports():
        from controller_service.service import run_controller
    try:
        run_controller(arguments.config)
    except PravegaError as error:
        print(f"controller: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
