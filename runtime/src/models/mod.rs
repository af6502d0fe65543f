//! The models of the runtime's own protocols: loom runs the code that ships in every schedule, and each mutant of that code has
//! to fail in one of them. Each module has one subject; `cover` gives the shipped types to loom's threads.
//!
//! A model that checks a user's protocol, over public items only, is `tests/loom_user.rs`.

mod caught;
mod cover;

mod apart;
mod ask;
mod barrier;
mod block_on;
mod blockers;
mod bound;
mod chan;
mod chan_task;
mod class;
mod classes;
mod condvar;
mod context;
mod deadlock;
mod event;
mod group;
mod handoffp;
mod help;
mod interrupt;
mod io_lock;
mod jobs;
mod jobs_beside;
mod jobs_slots;
mod join;
mod lock;
mod locked;
mod mail;
mod mutex;
mod note;
mod once;
mod park;
mod policy;
mod poll;
mod polldesc;
mod polltask;
mod procs;
mod promise;
mod quit;
mod runq;
mod rwlock;
mod select;
mod semaphore;
mod several;
mod shared;
mod shutdown;
mod signal;
mod socket;
mod spawn_burst;
mod stacks;
mod store_lock;
mod submit_vs_idle;
mod summons;
mod switch;
mod task;
mod timer;
mod token;
mod trim;
mod turn;
mod visits;
mod waitgroup;
mod window;
