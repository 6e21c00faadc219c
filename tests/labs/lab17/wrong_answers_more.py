"""Wrong answers to lab 17 by readers who had not seen the checks."""

from tests.labs.answers import edits

# fmt: off
edits(
    ("dispatch", "no_group_in_the_ticket", {"takes.sum(1).tolist(), group":
     "takes.sum(1).tolist(), None", "*ticket[1:])": "*ticket[1:3], group)"}, "ticket"),
    ("combine", "tokens_up_to_the_last_one_with_a_row",
     {"every.unflatten(0, weights.shape) * weights[..., None]).sum(1)":
      "every.unflatten(0, weights.shape) * weights[..., None]).sum(1)"
      "[: int((order // weights.shape[1]).max()) + 1 if len(order) else 0]"}, "other sum"),
    ("average_gradients", "matrices_alone", "        for p in parameters:\n",
     "        for p in [p for p in parameters if p.ndim > 1]:\n", "other"),
)
edits(
    ("dispatch", "stays_away_without_rows", "    takes = torch.empty_like(sends)\n",
     "    if not len(order):\n        none = [0] * n\n"
     "        return x[:0], order[:0], (order, none, none, group)\n"
     "    takes = torch.empty_like(sends)\n", "Deadlock: returned"),
    raises=True,
)
# fmt: on
