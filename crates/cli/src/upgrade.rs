// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront upgrade`: lets a new program take a running daemon's place, with its clients.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use flashfront_serve::control::{Command, Response};

use crate::human;
use crate::status::{Socket, connect};

/// The longest that an upgrade takes: the new program starts, the cache is closed, opened, and
/// opened once more if the new program fails.
const PATIENCE: Duration = Duration::from_secs(180);

/// Let a new program take a running daemon's place; clients wait for a moment, and stay connected.
///
/// The new program is started with the daemon's arguments. It first says whether it can go on with
/// what there is; a refusal changes nothing. Clients of NBD (TLS, too) and of vhost-user-blk are
/// handed over with their connections, mounts of FUSE with the files that are open. Devices of ublk
/// are handed over if they were made with --durability always. What can't be handed over is said,
/// and then nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  flashfront upgrade                     after the package was upgraded
  flashfront upgrade --program ./flashfront")]
pub(crate) struct Upgrade {
    #[command(flatten)]
    socket: Socket,
    /// The new program [default: the file that the daemon was started from].
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Close connections inside TLS: for programs that can't take them over, as they are older.
    /// Their clients have to connect again.
    #[arg(long)]
    disconnect: bool,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Upgrade {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        // The daemon may run in another folder.
        let program = self.program.map(std::path::absolute).transpose()?;
        let mut client = connect(&self.socket.path())?;
        client.wait_at_most(PATIENCE)?;
        match client.call(&Command::Upgrade { program, disconnect: self.disconnect })? {
            Response::Upgraded(upgraded) if self.json => human::print_json(&upgraded)?,
            Response::Upgraded(upgraded) => human::tell(&format!(
                "upgraded: {} serves in the place of {}, as process {}; {} stayed connected, and waited {} ms\n",
                upgraded.to,
                upgraded.from,
                upgraded.pid,
                match upgraded.clients {
                    1 => "1 client".to_owned(),
                    clients => format!("{clients} clients"),
                },
                upgraded.paused_ms
            ))?,
            other => anyhow::bail!("an answer to another question: {other:?}"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
