"""The fixture users' test suites get: a whole service in one line."""

from __future__ import annotations

from tilewright.service.client import Client
from tilewright.service.testing import ServiceUnderTest

MATMUL = "matmul:M=64,N=64,K=64"


def test_a_whole_service_in_one_line(tilewright_service: ServiceUnderTest) -> None:
    job = tilewright_service.tune(MATMUL, trials=8, strategy="random")
    assert job.state == "SUCCEEDED"
    assert job.best is not None
    assert job.best["verified"]
    with Client() as client:  # code under test finds it by TILEWRIGHT_URL
        again = client.submit(MATMUL, trials=8, strategy="random", seed=1)
        assert client.wait(again.id, timeout_secs=60).state == "SUCCEEDED"
        assert len(list(client.trials(again.id))) == 8


def test_the_machine_can_be_a_bad_one(tilewright_service: ServiceUnderTest) -> None:
    tilewright_service.use({"failure_rates": {"run_crash": 1.0}})
    job = tilewright_service.tune(MATMUL, trials=4)
    assert job.state == "FAILED"
    assert job.error is not None
    assert job.error["code"] == "no_candidate_passed"
