//! [`Load`], what a runtime is doing in numbers, in the public interface.

/// What a runtime is doing, in numbers; returned by [`Handle::load`](crate::Handle::load).
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Load {
    /// The number of Ps: how many goroutines may run at the same time.
    pub procs: usize,
    /// How many of the Ps no thread holds.
    pub idle_procs: usize,
    /// The number of this runtime's threads, those under way and the monitor included, and that of a caller of
    /// [`Runtime::run_locked`](crate::Runtime::run_locked). Not counted are threads that all runtimes share, as the one for timers
    /// outside of runtimes.
    pub threads: usize,
    /// How many of the threads sleep because they have nothing to do, without the one that waits for sockets and timers.
    pub idle_threads: usize,
    /// How many goroutines have not ended.
    pub goroutines: usize,
    /// How many goroutines are ready and wait for their turn, of all classes and in all queues; those too that are about to
    /// block a thread and wait for one, but not those that [`go_lifo`](crate::go_lifo) has put aside.
    pub ready: usize,
    /// How many file calls are under way that count towards [`max_file_calls`](crate::RuntimeBuilder::max_file_calls).
    pub file_calls: usize,
    /// How many goroutines wait in line for a file call.
    pub file_calls_in_line: usize,
    /// How many name look-ups of goroutines are under way.
    pub lookups: usize,
    /// How many goroutines wait in line for a look-up.
    pub lookups_in_line: usize,
}
