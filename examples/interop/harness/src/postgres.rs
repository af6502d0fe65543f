//! PostgreSQL in a folder of its own.

use crate::{Peer, Program, run};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Starts PostgreSQL with room for 300 clients. Its superuser is called `gmp` and needs no password.
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
    // After SIGTERM it would wait for its clients.
    peer.ended_by(libc::SIGINT)
}

/// Has the command run as `nobody` if the test runs as root, because PostgreSQL refuses to run as root. The number needs no
/// entry in the list of users.
fn not_as_root(command: &mut Command) -> &mut Command {
    const NOBODY: u32 = 65_534;
    // SAFETY: the call only reads an id.
    if unsafe { libc::geteuid() } == 0 {
        command.gid(NOBODY).uid(NOBODY);
    }
    command
}
