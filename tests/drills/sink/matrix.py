"""Lists all points of the matrix, in the order of the report."""

from tests.drills.sink import cluster_points, driver_points, task_points
from tests.drills.sink.points import POINTS

__all__ = ["POINTS", "cluster_points", "driver_points", "task_points"]
