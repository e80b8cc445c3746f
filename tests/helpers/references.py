"""The same mathematics, dense, slow and obvious."""

import decimal
from decimal import Decimal

import numpy as np


def adjacency(
    edges: np.ndarray,
    num_nodes: int,
    *,
    self_loops: bool = True,
    normalization: str = "symmetric",
) -> np.ndarray:
    """Return D^-1/2 (W + I) D^-1/2, or D^-1 (W + I), entry by entry."""
    W = np.zeros((num_nodes, num_nodes))
    for sender, receiver in edges.T:
        if sender != receiver:
            W[sender, receiver] = W[receiver, sender] = 1
    if self_loops:
        W += np.eye(num_nodes)
    degree = W.sum(axis=1)
    A = np.zeros_like(W)
    for i in range(num_nodes):
        for j in range(num_nodes):
            if W[i, j]:
                norm = (degree[i] * degree[j]) ** 0.5
                A[i, j] = W[i, j] / (degree[i] if normalization == "row" else norm)
    return A


def normalized_gaussian_kernel(features: np.ndarray, gamma: float) -> np.ndarray:
    """Return Dk^-1/2 K Dk^-1/2, K_ij = exp(-γ |x_i - x_j|^2)."""
    K = np.array([
        [np.exp(-gamma * np.sum((x - y) ** 2)) for y in features] for x in features
    ])
    degree = K.sum(axis=1)
    return K / np.sqrt(np.outer(degree, degree))


def label_propagation(
    A: np.ndarray, start: np.ndarray, num_iterations: int, alpha: float
) -> np.ndarray:
    """Return F_k of F <- α A F + (1 - α) Z."""
    F = start
    for _ in range(num_iterations):
        F = alpha * (A @ F) + (1 - alpha) * start
    return F


def residual_propagation(
    S: np.ndarray,
    targets: np.ndarray,
    train: np.ndarray,
    step_size: float,
    num_steps: int,
    *,
    initial: np.ndarray | None = None,
    residual_fn=np.subtract,
) -> np.ndarray:
    """Return F_0, ..., F_t, (t + 1, n, c), as App. D.3 writes them."""
    F = np.zeros(targets.shape) if initial is None else initial
    trajectory = [F]
    for _ in range(num_steps):
        sent = np.zeros(targets.shape)
        sent[train] = residual_fn(targets[train], F[train])
        F = F + step_size * (S @ sent)
        trajectory.append(F)
    return np.stack(trajectory)


def train_residual(
    trajectory: np.ndarray, targets: np.ndarray, train: np.ndarray
) -> np.ndarray:
    """Return the RMS of the residual that each step sent."""
    gap = targets[train] - trajectory[:-1, train]
    return np.sqrt(np.mean(gap**2, axis=(1, 2)))


def kernel_regression(
    S: np.ndarray, targets: np.ndarray, train: np.ndarray
) -> np.ndarray:
    """Return S[:, X] S_XX^+ Y on all nodes."""
    S_XX = S[np.ix_(train, train)]
    return S[:, train] @ np.linalg.pinv(S_XX, rcond=1e-10) @ targets[train]


def growth(eigenvalue: float, step_size: float, t: float, *, flow=False) -> float:
    """Return (1 - (1 - η λ)^t) / λ, or the flow's, in 800 digits."""
    with decimal.localcontext(prec=800):
        rate, eta, time = Decimal(eigenvalue), Decimal(step_size), Decimal(t)
        if rate == 0:
            return float(eta * time)
        if flow:
            decay = (-eta * rate * time).exp()
        elif time == 0:
            decay = Decimal(1)
        else:
            decay = (1 - eta * rate) ** int(t)
        return float((1 - decay) / rate)


def select(
    values: list[float], rule: str, patience: int
) -> tuple[float, int, int | None]:
    """Return the best value, its step (0: none) and the step at which it stopped."""
    best, step, rising = -np.inf, 0, 0
    for t, value in enumerate(values, start=1):
        if value > best or (value == best and rule == "last"):
            if value > best:
                rising = t
            best, step = value, t
        if t - rising >= patience:
            return best, step, t
    return best, step, None
