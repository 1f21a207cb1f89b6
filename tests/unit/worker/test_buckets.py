"""Buckets hold whole parameters of one dtype, last ones first; shares cover them without overlap."""

import itertools

import pytest
import torch

from elastane.worker.buckets import SHARE_ELEMENTS, Bucket, plan_buckets

F32, F64 = torch.float32, torch.float64


def parameters(*lengths: int) -> list[torch.Tensor]:
    return [torch.zeros(length) for length in lengths]


def test_buckets_are_filled_from_the_last_parameter_and_closed_when_full() -> None:
    assert plan_buckets(parameters(16, 16, 32, 5), 100) == (
        Bucket(indices=(3, 2), starts=(0, 16), length=48, dtype=F32),
        Bucket(indices=(1, 0), starts=(0, 16), length=32, dtype=F32),
    )


def test_every_dtype_has_buckets_of_its_own() -> None:
    mixed = [torch.zeros(16), torch.zeros(16, dtype=F64), torch.zeros(16)]
    assert plan_buckets(mixed, 10_000) == (
        Bucket(indices=(2, 0), starts=(0, 16), length=32, dtype=F32),
        Bucket(indices=(1,), starts=(0,), length=16, dtype=F64),
    )


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 100, 1001])
@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_cover_a_bucket_once_and_start_on_cache_lines(length: int, workers: int) -> None:
    bucket = Bucket(indices=(), starts=(), length=length, dtype=F32)
    shares = [bucket.share(position, workers) for position in range(workers)]
    covered = itertools.chain.from_iterable(range(share.start, share.stop) for share in shares)
    assert list(covered) == list(range(length))
    assert all(share.start % SHARE_ELEMENTS == 0 or share.start == length for share in shares)


def test_views_have_the_shapes_and_strides_of_the_parameters() -> None:
    shaped = [
        torch.zeros(3, 4),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(4, 6).t(),  # neither order: laid out row by row
        torch.zeros(()),
    ]
    (bucket,) = plan_buckets(shaped, 1 << 20)
    flat = torch.zeros(bucket.length)
    views = bucket.views(flat, shaped)
    assert {index: view.shape for index, view in views.items()} == {i: p.shape for i, p in enumerate(shaped)}
    assert views[1].stride() == shaped[1].stride()
    for index, view in views.items():
        view.fill_(index + 1)
    for index, parameter in enumerate(shaped):
        assert int((flat == index + 1).sum()) == parameter.numel()
