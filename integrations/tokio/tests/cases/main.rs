//! tokio in goroutines. Each case runs in processes of its own, with 1, 2 and 4 Ps, and each park resumes on another thread;
//! but not where reports of a deadlock are the matter (`judge`), nor where the reactor does not start (a case of `reactor`).

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
