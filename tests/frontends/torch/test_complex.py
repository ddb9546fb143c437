"""Complex numbers between real inputs and results, against eager PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch")

from rammer.errors import UnsupportedFeatureError  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Function, Module, check, generator, imported, normal  # noqa: E402

pytestmark = pytest.mark.torch


A, B = normal(2, 6, 4), torch.randn(2, 6, 4, generator=generator().manual_seed(8))


def real_of(x):
    return torch.view_as_real(x.resolve_conj())


def z(a, b):
    return torch.complex(a, b)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_fourier_transforms(norm):
    check(lambda x: (real_of(torch.fft.fft(x, dim=1, norm=norm)), real_of(torch.fft.ifft(x, norm=norm))), A)
    check(lambda x: (real_of(torch.fft.rfft(x, dim=1, norm=norm)), real_of(torch.fft.rfft2(x, norm=norm))), A)
    check(lambda a, b: (torch.fft.irfft(z(a, b), n=7, dim=1, norm=norm), torch.fft.irfft2(z(a, b), norm=norm)), A, B)
    check(lambda x: torch.fft.irfftn(torch.fft.rfftn(x, norm=norm), s=(2, 6, 4), dim=(0, 1, 2), norm=norm), A)


def test_transforms_of_other_lengths_and_orders():
    check(lambda x: (real_of(torch.fft.fft(x, n=9)), real_of(torch.fft.fft(x, n=3))), A)
    check(lambda x: real_of(torch.fft.ifftn(torch.fft.fftshift(torch.fft.fftn(x)))), A)
    check(lambda x: real_of(torch.fft.fft2(x, dim=(2, 0))), A)
    check(
        lambda x: (real_of(torch.fft.rfft(x.double())), torch.fft.irfft(torch.fft.rfft(x.double()))), A, tolerance=1e-12
    )


def test_frames_of_a_signal():
    window = torch.hann_window(16)

    def there_and_back(x):
        frames = torch.stft(x, 16, 4, window=window, return_complex=True)
        return frames.abs(), torch.istft(frames, 16, 4, window=window)

    check(there_and_back, normal(2, 64))


def test_arithmetic():
    check(lambda a, b: [real_of(x) for x in (z(a, b) + z(b, a), z(a, b) - a, a - z(a, b), -z(a, b), z(a, b) + 2)], A, B)
    check(lambda a, b: [real_of(x) for x in (z(a, b) * z(b, a), z(a, b) * a, 2 * z(a, b), 1j * a, z(a, b) - 1j)], A, B)
    check(
        lambda a, b: [real_of(x) for x in (z(a, b) / z(b, a), z(a, b) / a, a / z(a, b), z(a, b) / 3, 1 / z(a, b))], A, B
    )
    check(lambda a, b: [real_of(x) for x in (z(a, b).conj(), a.conj().to(torch.complex64), torch.exp(z(a, b)))], A, B)
    check(lambda a, b: (real_of(torch.polar(a, b)), z(a, b).real, z(a, b).imag, z(a, b).conj().imag), A, B)


def test_sizes_and_angles():
    a = torch.tensor([0.0, -0.0, 1.0, -1.0, 3e30, 3e-30, math.inf, -math.inf, 2.0, math.nan])
    check(lambda a, b: (z(a, b).abs(), z(a, b).angle()), a.repeat(8), a[:8].repeat_interleave(10))
    check(torch.angle, a)


def test_divisors_of_any_size():
    check(lambda a: [real_of(z(a, a) / z(a * size, 2 * a * size)) for size in (1e-30, 1.0, 1e30)], A)


def test_beside_integers():
    """They have no imaginary part."""
    i = torch.arange(40).view(2, 4, 5)
    a, b = torch.randn(2, 4, 5), i > 20
    check(
        lambda a, i, b: [real_of(x) for x in (z(a, a) + i, i - z(a, a), b + z(a, a), torch.cat([z(a, a), i]))], a, i, b
    )
    check(lambda a, i, b: [real_of(torch.where(b, *pair)) for pair in ((z(a, a), i), (i, z(a, a)))], a, i, b)
    check(lambda i, b: [real_of(x.to(torch.complex64)) for x in (i, b)], i, b)
    check(lambda i, b: (torch.fft.irfft(i), torch.fft.irfft(i, n=6, dim=1), torch.fft.hfft(b)), i, b)


def test_products():
    check(lambda a, b: real_of(z(a, b) @ z(b, a).mT), A, B)
    check(lambda a, b: real_of(torch.einsum("bix,ox->bio", z(a, b), z(b[0], a[0]))), A, B)
    check(lambda a, b: real_of((a + 0j) @ z(b, a).mT), A, B)
    check(lambda a, b: real_of(torch.outer(z(a, b)[0, :, 0], z(a, b)[1, 0])), A, B)


def test_parts_and_orders():
    check(lambda a, b: [real_of(x) for x in z(a, b).chunk(2, 1)], A, B)
    check(lambda a, b: real_of(z(a, b).transpose(1, 2).reshape(2, 24)[:, 1::3].flip(1).roll(1, 1)), A, B)
    check(lambda a, b: real_of(torch.cat([z(a, b), torch.stack([z(b, a)[0], a[1].to(torch.complex64)])], 2)), A, B)
    check(lambda a, b: real_of(torch.where(a > 0, z(a, b), z(b, a))), A, B)
    check(lambda a, b: real_of(z(a, b)[:, torch.tensor([3, 0])]), A, B)
    check(lambda a, b: (real_of(z(a, b).sum(1)), real_of(z(a, b).mean((0, 2)))), A, B)


def test_frequencies_that_are_left_out():
    """As layers of Fourier neural operators do."""

    def filtered(x, weight):
        found = torch.fft.rfft(x, dim=1)
        kept = torch.zeros_like(found)
        kept[:, :2] = found[:, :2] * torch.view_as_complex(weight)
        return torch.fft.irfft(kept, n=6, dim=1)

    check(filtered, A, normal(2, 4, 2))


class Rotated(Module):
    """Rotary embeddings of pairs of elements, by a complex buffer and a complex parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(6, 2), normal(6, 2)))
        self.factor = torch.nn.Parameter(torch.complex(normal(2), normal(2)))

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(2, 6, 2, 2))
        return torch.view_as_real(pairs * self.turns * self.factor).flatten(2)


def test_parameters_and_buffers():
    check(Rotated(), A)


def test_backend():
    net = torch.compile(Rotated().eval(), backend="rammer", dynamic=False)
    with torch.no_grad():
        torch.testing.assert_close(net(A), Rotated()(A))


def test_what_there_is_not():
    with pytest.raises(UnsupportedFeatureError, match="tanh of complex numbers"):
        imported(lambda a, b: torch.tanh(z(a, b)).real, A, B)
    with pytest.raises(UnsupportedFeatureError, match="complex64 of what the model takes, gives or keeps"):
        imported(z, A, B)
    with pytest.raises(UnsupportedFeatureError, match="input 'args_0'"):
        imported(torch.abs, torch.complex(A, B))
    with pytest.raises(Exception, match="complex64 of what the model takes"), torch.no_grad():
        torch.compile(Function(z), backend="rammer", dynamic=False)(A, B)
