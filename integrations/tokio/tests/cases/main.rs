//! tokio in goroutines. Each case runs in processes of its own, with 1, 2 and 4 Ps, where each park resumes on another thread.

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
