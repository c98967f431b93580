"""The cells that a run measures, most important first."""

from shapes import Shape

FIG2_BATCH = 64
SPREADS: tuple[float, ...] = (0.5, 1.5)  # of experts' popularity, for cells with uneven routing


class Grid:
    """The cells of a run, most important first."""

    def __init__(self, small: bool, quick: bool):
        self.batches = [1, 4, 8] if small else [1, 16, 64, 128] if quick else [1, 8, 16, 32, 48, 64, 96, 128]
        self.active = [4, 6, 8, 12, 16] if small else [16, 64, 128] if quick else [16, 32, 48, 64, 80, 96, 112, 128]
        self.contexts = [16, 40, 80] if small else [256, 1024, 4096]
        self.tokens = [16, 32, 48] if small else [128, 1024, 4096] if quick else [128, 512, 1024, 2048, 4096]
        self.fig2_batch = 8 if small else FIG2_BATCH
        self.quick = quick or small

    def actives(self, shape: Shape, tokens: int) -> list[int]:
        most = min(shape.experts, tokens * shape.top_k)
        return sorted({shape.top_k, *(a for a in self.active if shape.top_k < a <= most)})

    def cells(self, shape: Shape) -> list[list[tuple[int, int, int]]]:
        """Tiers of (batch, active, context); a short budget drops the last ones."""
        low, mid, high = self.contexts
        first = self.batches if self.quick else [1, 16, 32, 64, 128]
        few = {shape.top_k, *self.active[1::2], max(self.active)}
        every = [(b, a) for b in self.batches for a in self.actives(shape, b)]
        tiers = [
            [(b, a, mid) for b, a in every if b in first],
            [(b, a, c) for c in (high, low) for b, a in every if b in first and a in few],
            [(b, a, mid) for b, a in every if b not in first],
            [(b, a, c) for c in (high, low) for b, a in every if not (b in first and a in few)],
        ]
        return tiers[:2] if self.quick else tiers
