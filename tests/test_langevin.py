from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from truth import mean_differs
from vages import GRBM, EnergyModel, LinearGaussian
from vages.domains import Empty, Real
from vages.samplers import (
    LangevinState,
    Schedule,
    langevin_init,
    langevin_step,
    program,
    sample_joint,
    sample_unconditional,
    sample_v,
)

CHAINS = 20_000
KEY = jax.random.key(0)
ALL = np.ones(3, bool)
SHORT = Schedule(hot_steps=3, cooling_steps=4, freezing_steps=3, top_temperature=5.0, step_size=0.7, denoise=0.4)


def gaussian(dtype="float32"):
    """v (3,) and h (2,), coupled so strongly that a wrong chain shows."""
    rng = np.random.default_rng(3)
    weight, b, c = rng.uniform(-0.7, 0.7, (3, 2)), rng.uniform(-1, 1, 3), rng.uniform(-1, 1, 2)
    return LinearGaussian(*(jnp.asarray(x, dtype) for x in (weight, b, c, np.asarray([-0.4, 0.1, -0.2]))))


def joint_form(model: LinearGaussian):
    """P and r of log p̃(x) = −½ xᵀPx + rᵀx + const, x = (v, h), from the energy's own formula."""
    w, b, c, log_sigma = (
        np.asarray(x, np.float64) for x in (model.weight, model.visible_bias, model.latent_bias, model.log_sigma)
    )
    precision = np.block([[np.diag(np.exp(-2 * log_sigma)), -w], [-w.T, np.eye(len(c))]])
    return precision, np.append(b * np.exp(-2 * log_sigma), c)


def film(samples):
    assert samples.trajectory is not None
    return np.asarray(samples.trajectory)


def law(precision, information, schedule, v_dim):
    """Mean and covariance of the discrete chain: the start, each step, and the denoised end."""
    dim, s = len(information), schedule.step_size
    mean, covariance = np.full(dim, 0.5), np.eye(dim)
    for temperature in schedule.temperatures():
        matrix = np.eye(dim) - 0.5 * s**2 * precision
        mean = mean + 0.5 * s**2 * (information - precision @ mean)
        covariance = matrix @ covariance @ matrix.T + temperature * s**2 * np.eye(dim)
    if schedule.denoise is not None:
        gain = np.diag(np.arange(dim) < v_dim) * schedule.denoise**2
        mean, matrix = mean + gain @ (information - precision @ mean), np.eye(dim) - gain @ precision
        covariance = matrix @ covariance @ matrix.T
    return mean, covariance


def check_law(x, mean, covariance):
    """Test means and all products, with a false-alarm rate of 1e-6 each."""
    gap = np.asarray(x, np.float64) - mean
    assert not mean_differs(gap, np.zeros(gap.shape[1]))
    rows, columns = np.triu_indices(gap.shape[1])
    assert not mean_differs(gap[:, rows] * gap[:, columns], covariance[rows, columns])


def test_the_default_schedule_is_the_papers():
    t = Schedule().temperatures()
    assert t.shape == (2700,)
    assert (t[:500] == 100).all()
    np.testing.assert_allclose(t[500:2500], 100 ** (1 - np.arange(2000) / 2000), rtol=1e-12)
    np.testing.assert_allclose(t[2500:], 1 - np.arange(200) / 199, atol=1e-15)
    assert t[2500] == 1
    assert t[-1] == 0
    drift, h_drift, scale = Schedule().moves()
    np.testing.assert_allclose(drift, np.append(np.full(2700, 0.5 * 0.02**2), 0.1**2))
    np.testing.assert_allclose(h_drift, np.append(np.full(2700, 0.5 * 0.02**2), 0))
    np.testing.assert_allclose(scale, np.append(np.sqrt(t) * 0.02, 0))
    assert Schedule(denoise=None).moves().drift.shape == (2700,)
    np.testing.assert_array_equal(Schedule().snapshots(10), [*(269 * np.arange(1, 10)), 2700])


def test_a_schedule_can_be_shortened():
    short = Schedule().scaled(0.1)
    assert (short.hot_steps, short.cooling_steps, short.freezing_steps) == (50, 200, 20)
    assert short.temperatures()[[0, 50, -20, -1]].tolist() == [100, 100, 1, 0]
    tiny = Schedule(freezing_steps=0).scaled(1e-9)
    assert (tiny.hot_steps, tiny.cooling_steps, tiny.freezing_steps) == (1, 1, 0)


@pytest.mark.parametrize("joint", [False, True])
def test_a_step_is_the_formula(float64, joint):
    model, key = gaussian("float64"), jax.random.key(0)
    rng = np.random.default_rng(0)
    v, h = jnp.asarray(rng.normal(size=(4, 3))), jnp.asarray(rng.normal(size=(4, 2)))
    start = LangevinState(v, h, jnp.zeros(4, bool).at[3].set(True))  # already diverged
    step = eqx.filter_jit(langevin_step)(key, model, start, temperature=3.0, step_size=0.3, joint=joint)
    noise = jax.random.normal(key, (4, 5 if joint else 3))
    precision, information = joint_form(model)
    force = information - np.concatenate([v, h], 1) @ precision
    expected_v = v + 0.045 * force[:, :3] + 3**0.5 * 0.3 * noise[:, :3]
    np.testing.assert_allclose(step.v, expected_v.at[3].set(np.nan), rtol=1e-12)
    if joint:
        h = (h + 0.045 * force[:, 3:] + 3**0.5 * 0.3 * noise[:, 3:]).at[3].set(np.nan)
    np.testing.assert_allclose(step.h, h, rtol=1e-12)
    assert step.diverged.tolist() == [False, False, False, True]


def replay(key, model, h, schedule):
    """v after every step of the kernel, one step at a time, and the denoised end."""
    for_start, for_steps = jax.random.split(jax.random.fold_in(key, 0))
    state = eqx.filter_jit(langevin_init)(for_start, model, len(h), h)
    step, path = eqx.filter_jit(langevin_step), []
    for i, temperature in enumerate(schedule.temperatures()):
        now = jax.random.fold_in(for_steps, i)
        state = step(now, model, state, temperature=jnp.asarray(temperature), step_size=schedule.step_size)
        path.append(np.asarray(state.v))
    precision, information = joint_form(model)
    score = information[:3] - np.concatenate([state.v, h], 1) @ precision[:, :3]
    return np.stack(path), np.asarray(state.v) + schedule.denoise**2 * score


def test_a_sample_is_the_kernel_step_by_step(float64):
    """Also its trajectory, and the chains that leave the box at any step."""
    model, h = gaussian("float64"), np.random.default_rng(1).normal(size=(6, 2))
    path, end = replay(jax.random.key(5), model, jnp.asarray(h), SHORT)
    samples = sample_v(jax.random.key(5), model, h, SHORT, record=4)
    np.testing.assert_allclose(samples.v, end, rtol=1e-12)
    np.testing.assert_allclose(film(samples), np.concatenate([path[[1, 3, 5]], end[None]]), rtol=1e-12)
    np.testing.assert_array_equal(samples.h, h)
    assert not samples.diverged.any()

    furthest = np.abs(np.concatenate([path, end[None]]) - 0.5).max((0, 2))
    out = furthest > (box := float(np.median(furthest)))
    assert (out & (np.abs(end - 0.5).max(1) < box)).any()  # one chain that comes back
    caught = sample_v(jax.random.key(5), model, h, replace(SHORT, box=box), record=4)
    np.testing.assert_array_equal(caught.diverged, out)
    np.testing.assert_array_equal(caught.v, np.where(out[:, None], np.nan, samples.v))
    seen = np.abs(film(samples) - 0.5).max(2) <= box
    np.testing.assert_array_equal(np.isfinite(film(caught)).all(2) <= seen, True)


def test_v_given_h_has_the_law_of_the_discrete_chain():
    """Each chain has its own h, and therefore its own mean."""
    model, h = gaussian(), np.random.default_rng(2).normal(size=(CHAINS, 2)).astype(np.float32)
    samples = sample_v(jax.random.key(0), model, h, SHORT, batch=CHAINS)
    precision, information = joint_form(model)
    still, covariance = law(precision[:3, :3], information[:3], SHORT, 3)
    moved = [law(precision[:3, :3], information[:3] - precision[:3, 3 + j], SHORT, 3)[0] - still for j in range(2)]
    check_law(samples.v, still + h @ np.stack(moved), covariance)


@pytest.mark.long_runs
def test_v_and_h_together_have_the_law_of_the_discrete_chain():
    model = gaussian()
    samples = sample_joint(jax.random.key(0), model, CHAINS, SHORT, batch=CHAINS)
    check_law(np.concatenate([samples.v, samples.h], 1), *law(*joint_form(model), SHORT, 3))


@pytest.mark.long_runs
def test_a_long_chain_is_at_its_stationary_law():
    """N(μ, T P⁻¹ (1 − ¼ s² P)⁻¹): Langevin dynamics at temperature T, with the bias of the step size."""
    model, s, temperature = gaussian(), 0.8, 2.5
    schedule = Schedule(60, 0, 0, temperature, s, denoise=None)
    samples = sample_joint(jax.random.key(1), model, CHAINS, schedule, batch=CHAINS)
    precision, information = joint_form(model)
    bias = np.eye(5) - 0.25 * s**2 * precision
    check_law(
        np.concatenate([samples.v, samples.h], 1),
        np.linalg.solve(precision, information),
        temperature * np.linalg.inv(precision @ bias),
    )


@pytest.mark.long_runs
def test_inpainting_samples_the_unknown_pixels_given_the_known():
    """One entry of v (3,) is known. The other two and h follow the chain of their conditional density."""
    model, known = gaussian(), np.asarray([9.0, -1.3, np.nan], np.float32)
    mask, free = np.asarray([False, True, False]), [0, 2, 3, 4]
    samples = sample_joint(jax.random.key(2), model, CHAINS, SHORT, mask=mask, known=known, record=3, batch=CHAINS)
    precision, information = joint_form(model)
    held = information[free] - precision[free, 1] * np.float64(known[1])
    x = np.concatenate([samples.v, samples.h], 1)
    check_law(x[:, free], *law(precision[np.ix_(free, free)], held, SHORT, 2))
    assert (np.asarray(samples.v)[:, 1] == known[1]).all()
    assert (film(samples)[:, :, 1] == known[1]).all()


def test_inpainting_with_a_mask_for_each_chain(float64):
    """Known entries are exact. Free entries are the same as without a mask, as entries of v are independent given h."""
    model, h = gaussian("float64"), jnp.zeros((4, 2))
    mask = np.arange(12).reshape(4, 3) % 5 == 0
    known = np.random.default_rng(0).normal(size=(4, 3))
    with_mask = sample_v(jax.random.key(0), model, h, SHORT, mask=mask, known=known, batch=2)
    without = sample_v(jax.random.key(0), model, h, SHORT, batch=2)
    np.testing.assert_array_equal(np.asarray(with_mask.v)[mask], known[mask])
    np.testing.assert_allclose(np.asarray(with_mask.v)[~mask], np.asarray(without.v)[~mask], rtol=1e-12)
    how = {"mask": mask, "known": known, "batch": 2}
    both = sample_unconditional(jax.random.key(0), model, 4, SHORT, **how)  # the joint chain, then that of v given h
    for_h, for_v = jax.random.split(jax.random.key(0))
    np.testing.assert_array_equal(both.h, sample_joint(for_h, model, 4, SHORT, **how).h)
    np.testing.assert_array_equal(both.v, sample_v(for_v, model, both.h, SHORT, **how).v)


@pytest.mark.optimized
def test_neither_chunks_nor_batches_to_come_change_a_bit(float64):
    model, h = gaussian("float64"), np.random.default_rng(1).normal(size=(11, 2))
    whole = sample_v(jax.random.key(0), model, h[:6], SHORT, record=4)
    for chunk in (1, 4, 10):
        cut = sample_v(jax.random.key(0), model, h[:6], SHORT, record=4, chunk=chunk)
        assert all(jax.tree.map(np.array_equal, whole, cut))
    more = sample_v(jax.random.key(0), model, h, SHORT, record=4, batch=6)
    assert more.v.shape == (11, 3)
    assert more.diverged.shape == (11,)
    np.testing.assert_array_equal(more.h, h)
    np.testing.assert_array_equal(more.v[:6], whole.v)
    np.testing.assert_array_equal(film(more)[:, :6], film(whole))
    np.testing.assert_array_equal(film(more)[-1], more.v)
    assert len(np.unique(np.asarray(more.v)[:, 0].round(6))) == 11
    alike = sample_v(jax.random.key(0), model, np.tile(h[:1], (11, 1)), SHORT, record=4, batch=6)
    assert len(np.unique(np.asarray(alike.v)[:, 0].round(6))) == 11  # each batch has its own noise


def test_the_size_of_a_block_of_noise_does_not_matter(float64, monkeypatch):
    model, h = gaussian("float64"), jnp.zeros((5, 2))
    large = sample_v(jax.random.key(0), model, h, SHORT)
    monkeypatch.setattr(program, "_NOISE_BYTES", 4 * 5 * 3 * 8)  # the size of four steps
    small = sample_v(jax.random.key(0), model, h, replace(SHORT, denoise=None))  # a different program
    precision, information = joint_form(model)
    end = np.asarray(small.v)
    denoised = end + 0.4**2 * (information[:3] - end @ precision[:3, :3])
    np.testing.assert_allclose(denoised, large.v, rtol=1e-12)


def test_shared_noise_leaves_only_what_h_does(float64):
    """The difference of two chains is then deterministic. Batches share the noise, too."""
    model, h = gaussian("float64"), np.asarray([[0.0, 0.0], [1.0, -0.5], [0.0, 0.0], [-2.0, 1.0]])
    shared = np.asarray(sample_v(jax.random.key(0), model, h, SHORT, shared_noise=True, batch=2).v)
    np.testing.assert_array_equal(shared[0], shared[2])
    precision, information = joint_form(model)
    means = np.stack([law(precision[:3, :3], information[:3] - precision[:3, 3:] @ one, SHORT, 3)[0] for one in h])
    np.testing.assert_allclose(shared - shared[0], means - means[0], rtol=1e-10, atol=1e-12)


def explosive(params, v, h):
    """½ ‖v‖² for h = 0; for h = 1 an energy without a lower bound."""
    return 0.5 * jnp.sum(v**2) - h[0] * jnp.sum(v**4)


@pytest.mark.parametrize("bad", [1.0, 1e38])  # out of the box after a few steps, and infinite at once
def test_a_diverged_chain_is_marked_and_touches_no_other(bad):
    model = EnergyModel(explosive, jnp.zeros(1), v=Real(2, 2), h=Real(1))
    good = sample_v(jax.random.key(0), model, jnp.zeros((5, 1)), SHORT, record=3)
    mixed = sample_v(jax.random.key(0), model, jnp.zeros((5, 1)).at[2].set(bad), SHORT, record=3)
    assert not good.diverged.any()
    assert mixed.diverged.tolist() == [False, False, True, False, False]
    others = np.asarray([0, 1, 3, 4])
    np.testing.assert_array_equal(mixed.v[others], good.v[others])
    np.testing.assert_array_equal(film(mixed)[:, others], film(good)[:, others])
    assert np.isnan(mixed.v[2]).all()
    assert np.isnan(film(mixed)[-1, 2]).all()
    assert mixed.h[2] == np.float32(bad)


def test_a_chain_whose_latents_diverge_is_marked():
    energy = lambda params, v, h: 0.5 * jnp.sum(v**2) - 20 * jnp.sum(h**2)
    model = EnergyModel(energy, jnp.zeros(1), v=Real(2), h=Real(3))
    joint = sample_joint(jax.random.key(0), model, 4, SHORT)
    assert joint.diverged.all()
    assert np.isnan(joint.h).all()
    assert np.isnan(joint.v).all()
    assert sample_unconditional(jax.random.key(0), model, 4, SHORT).diverged.all()


@pytest.mark.long_runs
def test_unconditional_sampling_draws_h_from_a_pool():
    """Rows of the pool are used equally often (false-alarm rate 1e-6), and v follows its h."""
    model, pool = gaussian(), np.asarray([[2.0, 0.0], [-1.0, 1.0], [0.0, 3.0]], np.float32)
    samples = sample_unconditional(jax.random.key(3), model, CHAINS, SHORT, latents=pool, batch=CHAINS)
    which = (np.asarray(samples.h)[:, None] == pool).all(2)
    assert (which.sum(1) == 1).all()
    assert not mean_differs(which, np.full(3, 1 / 3))
    precision, information = joint_form(model)
    for row, one in zip(which.T, pool, strict=True):
        expected = law(precision[:3, :3], information[:3] - precision[:3, 3:] @ one.astype(np.float64), SHORT, 3)
        check_law(samples.v[row], *expected)


@pytest.mark.long_runs
def test_unconditional_sampling_draws_h_from_the_joint_chain():
    """h follows the joint chain, and v given h follows the conditional chain, with its own noise."""
    model, told = gaussian(), []
    samples = sample_unconditional(
        jax.random.key(4), model, CHAINS, SHORT, batch=CHAINS, progress=lambda *at: told.append(at)
    )
    assert told == [(10, 20), (20, 20)]
    for_h, for_v = jax.random.split(jax.random.key(4))
    np.testing.assert_array_equal(samples.h, sample_joint(for_h, model, CHAINS, SHORT, batch=CHAINS).h)
    np.testing.assert_array_equal(samples.v, sample_v(for_v, model, samples.h, SHORT, batch=CHAINS).v)
    precision, information = joint_form(model)
    mean, covariance = law(precision, information, SHORT, 3)
    check_law(samples.h, mean[3:], covariance[3:, 3:])
    still, spread = law(precision[:3, :3], information[:3], SHORT, 3)
    moved = [law(precision[:3, :3], information[:3] - precision[:3, 3 + j], SHORT, 3)[0] - still for j in range(2)]
    check_law(samples.v, still + np.asarray(samples.h, np.float64) @ np.stack(moved), spread)


def test_a_plain_energy_has_no_latents():
    model = EnergyModel(lambda params, v, h: 0.5 * jnp.sum(v**2), jnp.zeros(1), v=Real(2), h=Empty())
    joint = sample_joint(jax.random.key(0), model, 3, SHORT)
    given = sample_v(jax.random.key(0), model, jnp.zeros((3, 0)), SHORT)
    np.testing.assert_allclose(joint.v, given.v, rtol=1e-6)
    told = []
    alone = sample_unconditional(jax.random.key(0), model, 3, SHORT, progress=lambda *at: told.append(at))
    assert told == [(10, 10)]
    assert joint.h.shape == given.h.shape == alone.h.shape == (3, 0)
    assert not alone.diverged.any()


def test_features_in_bfloat16_move_a_float32_chain():
    """The chain of the rounded energy stays near the exact one, and the state keeps its own dtype."""

    def rounded(weight, v):
        return (weight.astype(jnp.bfloat16) @ v.astype(jnp.bfloat16)).astype(jnp.float32)

    energy = lambda weight, f, h: 0.5 * jnp.sum((f - h) ** 2)
    weight = 0.5 * jnp.eye(3) + 0.2
    models = [
        EnergyModel(energy, weight, Real(3), Real(3), features=features)
        for features in (rounded, lambda weight, v: weight @ v)
    ]
    rough, exact = (sample_v(jax.random.key(0), model, jnp.ones((4, 3)), SHORT) for model in models)
    assert rough.v.dtype == jnp.float32
    np.testing.assert_allclose(rough.v, exact.v, atol=0.1)
    assert (rough.v != exact.v).any()
    assert (rough.v.astype(jnp.bfloat16).astype(jnp.float32) != rough.v).all()


def test_progress_is_told_and_cannot_break_the_chains():
    model, h, told = gaussian(), jnp.zeros((5, 2)), []

    def broken(done, total):
        told.append((done, total))
        raise RuntimeError("a bar that broke")

    quiet = sample_v(jax.random.key(0), model, h, SHORT, batch=3, chunk=4)
    loud = sample_v(jax.random.key(0), model, h, SHORT, batch=3, chunk=4, progress=broken)
    assert told == [(4, 20), (8, 20), (10, 20), (14, 20), (18, 20), (20, 20)]
    np.testing.assert_array_equal(quiet.v, loud.v)


def test_one_compilation_serves_all_chunks_batches_and_schedules_of_a_length():
    traced = []

    def energy(params, v, h):
        traced.append(v)
        return 0.5 * jnp.sum((v - h) ** 2) * params

    model = EnergyModel(energy, jnp.ones(()), v=Real(2), h=Real(2))
    sample_v(jax.random.key(0), model, jnp.zeros((6, 2)), SHORT, batch=3, chunk=4)
    first = len(traced)
    other = Schedule(10, 0, 0, 2.0, 0.1, denoise=0.2, box=9.0)
    sample_v(jax.random.key(1), model, jnp.ones((8, 2)), other, batch=3, chunk=3, progress=lambda *_: None)
    assert len(traced) - first == 1  # the shape check of the call


MODEL = gaussian()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda h: sample_v(KEY, MODEL, h[:, :1], SHORT), ValueError, r"h: .*got \(4, 1\)"),
        (lambda h: sample_v(KEY, MODEL, h[0], SHORT), ValueError, r"h: .*got \(2,\); .*h\[None\]"),
        (lambda h: sample_v(KEY, MODEL, h[:0], SHORT), ValueError, r"h: .*got \(0, 2\)"),
        (lambda h: sample_v(KEY, MODEL, h * np.nan, SHORT), ValueError, "h: .*finite"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, record=10), ValueError, "record: .*got 10"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, record=0), ValueError, "record: .*got 0"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, batch=0), ValueError, "batch: .*got 0"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, chunk=0), ValueError, "chunk: .*got 0"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, mask=ALL), ValueError, "known: .*mask"),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, known=h[0]), ValueError, "mask: .*known"),
        (
            lambda h: sample_v(KEY, MODEL, h, SHORT, mask=ALL[:2], known=np.zeros(3)),
            ValueError,
            r"mask: .*got \(2,\)",
        ),
        (
            lambda h: sample_v(KEY, MODEL, h, SHORT, mask=ALL, known=np.zeros((3, 3))),
            ValueError,
            r"known: .*got \(3, 3\)",
        ),
        (lambda h: sample_v(KEY, MODEL, h, SHORT, mask=np.ones(3), known=ALL), TypeError, "mask: .*booleans"),
        (
            lambda h: sample_v(KEY, MODEL, h, SHORT, mask=ALL, known=np.full(3, np.nan)),
            ValueError,
            "known: .*finite",
        ),
        (lambda h: sample_joint(KEY, MODEL, 0, SHORT), ValueError, "count: .*got 0"),
        (
            lambda h: sample_joint(KEY, GRBM.init(KEY, 3, 2), 4, SHORT),
            TypeError,
            "model: .*GRBM",
        ),
        (
            lambda h: sample_unconditional(KEY, MODEL, 4, SHORT, latents=h[:, :1]),
            ValueError,
            r"latents: .*\(n, 2\)",
        ),
        (
            lambda h: sample_v(KEY, EnergyModel(lambda p, v, h: v, 1.0, Real(3), Real(2)), h, SHORT),
            ValueError,
            r"log_joint: .*got float32\[3\]",
        ),
        (lambda h: Schedule(hot_steps=-1), ValueError, "Schedule: hot_steps: .*got -1"),
        (lambda h: Schedule(0, 0, 0), ValueError, "Schedule: .*step"),
        (lambda h: Schedule(step_size=0.0), ValueError, "Schedule: step_size: .*got 0"),
        (lambda h: Schedule(top_temperature=np.inf), ValueError, "Schedule: top_temperature: .*got inf"),
        (lambda h: Schedule(denoise=0.0), ValueError, "Schedule: denoise: .* give None"),
        (lambda h: Schedule(box=np.nan), ValueError, "Schedule: box: .*got nan"),
        (lambda h: Schedule().scaled(0.0), ValueError, "scaled: fraction: .*got 0"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=f"^{words}") as caught:
        call(np.zeros((4, 2), np.float32))
    assert "\n" not in str(caught.value)
