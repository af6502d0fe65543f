//! Crates of tokio in goroutines. Each case runs in processes of its own, with 1, 2 and 4 Ps, where each park resumes on
//! another thread.

mod grpc;
mod http;
mod redis;
mod sql;
mod support;
