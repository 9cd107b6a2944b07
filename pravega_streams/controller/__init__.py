"""The controller as a client sees it. ``ControllerClient`` is in ``client.py``, its values in ``model.py``."""

from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.model import (
    RetentionPolicy,
    ScalingPolicy,
    SegmentRange,
    StreamConfiguration,
    Successor,
)

__all__ = ["ControllerClient", "RetentionPolicy", "ScalingPolicy", "SegmentRange", "StreamConfiguration", "Successor"]
