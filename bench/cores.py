"""On which cores the processes of a comparison work, and where the bench itself stays meanwhile.

The cores of a virtual machine are not equally fast: a process can sit on a slow one for its whole life. So the
processes that are compared share one core, as only one of them works at a time, and the next generation another.
"""

import contextlib
import os


class Cores:
    """The cores that this program may use. `why_not`: why nothing is pinned; None if it is."""

    def __init__(self, is_wanted=True):
        self.all = sorted(os.sched_getaffinity(0))
        self.why_not = None
        if not is_wanted:
            self.why_not = "not wanted (--no-pin)"
        elif len(self.all) < 2:
            self.why_not = "there is one core"
        else:
            try:
                with self.at_home():
                    pass
            except OSError as error:
                self.why_not = f"sched_setaffinity: {error.strerror}"

    @contextlib.contextmanager
    def at_home(self):
        """Meanwhile this program stays on a core that it gives to nobody. What it starts then would stay there too."""
        if self.why_not:
            yield
            return
        os.sched_setaffinity(0, self.all[:1])
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.all)

    def of(self, generation, generations):
        """
        The cores of a generation, all but the home, in the order in which they are to be used: generations begin
        evenly spread. None if nothing is pinned.
        """
        if self.why_not:
            return []
        rest = self.all[1:]
        first = generation * len(rest) // generations
        return rest[first:] + rest[:first]
