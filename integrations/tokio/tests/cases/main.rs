//! tokio in goroutines. Each case runs in processes of its own, with 1, 2 and 4 Ps, and each park resumes on another thread;
//! except for the cases about reports of a deadlock (`judge`), and the case in which the reactor does not start (in `reactor`).

mod blocking;
mod ends;
mod from_tasks;
mod judge;
mod locals;
mod net;
mod reactor;
mod streams;
mod support;
mod sync;
mod tasks;
mod time;
