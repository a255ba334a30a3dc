"""How a bench divides its time among cases that are measured again and again, in generations of processes.

A plan is the steps that are to come, of each generation the starts of processes and the cases, in order. Starting,
and loading a case, take what they take; that comes off first, estimated by the last time (before the first: by what
the bench says). What is left is the cases', by their weights. So a case whose loading is slow costs all of them a
bit, and itself no more than that.
"""

import math

MOST_GENERATIONS = 40
# Of the time that starting and loading may take: for as many generations as that allows, for the first few.
FOR_MORE, FOR_FEW = .3, .6
FEW = 3


def generations_for(seconds, cost):
    """How many to make in that time, if starting and loading all of one costs so much; endless time: FEW."""
    if not math.isfinite(seconds):
        return FEW
    few = min(FEW, max(1, int(FOR_FEW * seconds / cost)))
    return min(MOST_GENERATIONS, max(few, int(FOR_MORE * seconds / cost)))


class Shares:
    """`left` tells how many seconds there are; `steps` are names; cases are those that have a weight."""

    def __init__(self, left, steps, costs, weights):
        self.left = left
        self.coming = list(steps)
        self.costs = dict(costs)
        self.weights = dict(weights)

    def began(self, step):
        """It comes no more in this generation."""
        self.coming.remove(step)

    def took(self, step, seconds):
        """To start, or to load."""
        self.costs[step] = seconds

    def drop(self, step):
        """It comes no more at all."""
        self.coming = [one for one in self.coming if one != step]

    def seconds(self, case):
        """For the rounds of a case that began and is loaded."""
        if not math.isfinite(self.left()):
            return math.inf
        spendable = self.left() - sum(self.costs[step] for step in self.coming)
        weights = self.weights[case] + sum(self.weights.get(step, 0) for step in self.coming)
        return max(0, spendable) * self.weights[case] / weights
