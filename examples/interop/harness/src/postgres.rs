//! PostgreSQL in a folder of its own.

use crate::{Peer, Program, run};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// PostgreSQL with room for 300 clients; its superuser is called `gmp`, and needs no password.
#[track_caller]
pub fn postgres(initdb: &Program, postgres: &Program) -> Peer {
    let peer = Peer::start(|scratch, addr| {
        let data = scratch.join("data");
        let mut command = initdb.command();
        command.arg("--pgdata").arg(&data).args(["--username=gmp", "--auth=trust", "--no-sync"]);
        run(not_as_root(&mut command).current_dir(scratch.path())).good();
        let mut command = postgres.command();
        command.arg("-D").arg(data).arg("-k").arg(scratch.path()).args(["-h", "127.0.0.1", "-F"]);
        command.args(["-c", "max_connections=300", "-p", &addr.port().to_string()]);
        not_as_root(&mut command);
        command
    });
    // SIGTERM has it wait for its clients.
    peer.ended_by(libc::SIGINT)
}

/// It refuses to run as root: as `nobody` then, which needs no entry in the list of users to exist.
fn not_as_root(command: &mut Command) -> &mut Command {
    const NOBODY: u32 = 65_534;
    // SAFETY: it only looks.
    if unsafe { libc::geteuid() } == 0 {
        command.gid(NOBODY).uid(NOBODY);
    }
    command
}
