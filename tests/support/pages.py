"""Opens pages of REST and of a store's status as an operator's tools do, whether or not the cluster is secured."""

from __future__ import annotations

import urllib.request
from http.client import HTTPResponse

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from pravega_common.runtime.client_tls import ClientTls
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.credentials import credentials_from

page_time_max_s = 30.0


def open_page(cluster: StandaloneProcess, address: str) -> HTTPResponse:
    """``address``: ``host:port/path``. ``HTTPError`` for what is refused."""
    credentials = credentials_from()
    headers = {"Authorization": credentials.header()} if credentials else {}
    context = ClientTls.from_file(cluster.ca_file).context if cluster.ca_file else None
    request = urllib.request.Request(f"{'https' if context else 'http'}://{address}", headers=headers)
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=page_time_max_s, context=context)
    return answer


def metrics_at(cluster: StandaloneProcess, address: str) -> list[Metric]:
    """The metrics on a page of a service, as Prometheus reads them."""
    with open_page(cluster, address) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))


def store_samples(cluster: StandaloneProcess) -> list[Sample]:
    """The samples on the page of the last store."""
    families = metrics_at(cluster, cluster.ready()["metrics"][-1])
    return [sample for family in families for sample in family.samples]
