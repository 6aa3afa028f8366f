// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cluster of PostgreSQL in a folder, and its server while it runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cold;
use crate::command::Running;
use crate::error::BenchError;

/// Where Debian has the server's programs, a folder for each version.
const BINARIES: &str = "/usr/lib/postgresql";
/// Users that may run PostgreSQL when bench is root, which PostgreSQL refuses: the first that
/// exists.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// The folder with `initdb` and `pg_ctl`: the newest version's.
pub(super) fn binaries() -> Result<PathBuf, BenchError> {
    let versions = fs::read_dir(BINARIES).into_iter().flatten().flatten();
    let version = |path: PathBuf| Some((path.file_name()?.to_str()?.parse::<u32>().ok()?, path.join("bin")));
    let found = versions.filter_map(|entry| version(entry.path()));
    let found = found.filter(|(_, bin)| bin.join("initdb").is_file() && bin.join("pgbench").is_file());
    found.max_by_key(|it| it.0).map(|it| it.1).ok_or_else(|| {
        BenchError::Failed(format!(
            "PostgreSQL is not installed (no initdb and pgbench in {BINARIES}/*/bin); the suite database needs it. \
             Install it first: apt-get install postgresql"
        ))
    })
}

/// A cluster.
pub(super) struct Cluster {
    folder: PathBuf,
    binaries: PathBuf,
    /// The user that runs PostgreSQL's programs, if that is not the user of bench.
    user: Option<String>,
}

/// A server that runs. Its socket is in a folder of its own, as its path must be short.
pub(super) struct Server<'a> {
    cluster: &'a Cluster,
    sockets: tempfile::TempDir,
    is_running: bool,
}

impl Cluster {
    pub(super) fn at(folder: &Path) -> Result<Self, BenchError> {
        Ok(Self { folder: folder.to_owned(), binaries: binaries()?, user: user()? })
    }

    /// Makes it in an empty folder.
    pub(super) fn make(folder: &Path, stop: &dyn Fn() -> bool) -> Result<Self, BenchError> {
        let cluster = Self::at(folder)?;
        cluster.give(folder, stop)?;
        let data = cluster.data();
        cluster.run(
            "initdb",
            &["-N", "-D", &data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C"],
            folder,
            stop,
        )?;
        Ok(cluster)
    }

    pub(super) fn start(&self, stop: &dyn Fn() -> bool) -> Result<Server<'_>, BenchError> {
        let sockets = tempfile::Builder::new().prefix("flashfront-").tempdir();
        let sockets = sockets.map_err(|error| BenchError::Failed(format!("a folder for the socket: {error}")))?;
        self.give(sockets.path(), stop)?;
        let options = format!("-c listen_addresses= -c unix_socket_directories={}", sockets.path().display());
        let log = self.folder.join("server.log").display().to_string();
        let arguments = ["start", "-w", "-s", "-t", "600", "-D", &self.data(), "-l", &log, "-o", &options];
        let mut server = Server { cluster: self, sockets, is_running: true };
        if let Err(error) = self.run("pg_ctl", &arguments, &self.folder, stop) {
            server.is_running = !matches!(error, BenchError::Failed(_));
            return Err(error);
        }
        Ok(server)
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    /// Gives a folder to the user who runs the programs.
    fn give(&self, folder: &Path, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        let Some(user) = &self.user else { return Ok(()) };
        let command = ["chown", user, &folder.display().to_string()].map(str::to_owned);
        Running::start(&command)?.wait(stop).map(|_| ())
    }

    fn run(&self, program: &str, arguments: &[&str], at: &Path, stop: &dyn Fn() -> bool) -> Result<String, BenchError> {
        let program = self.binaries.join(program).display().to_string();
        // A user may not be let into the folder that we are in.
        let mut command = vec!["env".to_owned(), format!("--chdir={}", at.display())];
        if let Some(user) = &self.user {
            command.extend(["runuser", "-u", user, "--"].map(str::to_owned));
        }
        command.push(program);
        command.extend(arguments.iter().map(|it| (*it).to_owned()));
        Running::start(&command)?.wait(stop)
    }
}

impl Server<'_> {
    /// Runs pgbench; the log of its transactions, if it makes one.
    pub(super) fn pgbench(&self, arguments: &[String], stop: &dyn Fn() -> bool) -> Result<String, BenchError> {
        let socket = self.sockets.path().display().to_string();
        let (host, log) = (["-h", &socket, "-U", "bench"], format!("--log-prefix={socket}/log"));
        let writes_log = arguments.iter().any(|it| it == "-l");
        let mut all: Vec<&str> = host.to_vec();
        all.extend(writes_log.then_some(log.as_str()));
        all.extend(arguments.iter().map(String::as_str));
        self.cluster.run("pgbench", &all, self.sockets.path(), stop)?;
        let mut text = String::new();
        let entries = fs::read_dir(self.sockets.path()).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("log.")) {
            let part = fs::read_to_string(entry.path());
            text += &part.map_err(|error| BenchError::Failed(format!("{}: {error}", entry.path().display())))?;
        }
        Ok(text)
    }

    pub(super) fn stop(mut self, stop: &dyn Fn() -> bool) -> Result<(), BenchError> {
        self.is_running = false;
        let data = self.cluster.data();
        self.cluster.run(
            "pg_ctl",
            &["stop", "-w", "-s", "-t", "600", "-m", "fast", "-D", &data],
            &self.cluster.folder,
            stop,
        )?;
        cold::sync(&self.cluster.folder)
    }
}

impl Drop for Server<'_> {
    /// A server is never left running, whatever went wrong before.
    fn drop(&mut self) {
        if self.is_running {
            let data = self.cluster.data();
            let arguments = ["stop", "-w", "-s", "-m", "immediate", "-D", &data];
            // There is nothing more that could be done.
            let _ = self.cluster.run("pg_ctl", &arguments, &self.cluster.folder, &|| false);
        }
    }
}

/// The user that runs PostgreSQL's programs when bench is root.
fn user() -> Result<Option<String>, BenchError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let exists = |name: &&&str| users.lines().any(|line| line.split(':').next() == Some(**name));
    let user = USERS.iter().find(exists).map(|it| (*it).to_owned());
    user.map(Some).ok_or_else(|| {
        BenchError::Failed(
            "PostgreSQL does not run as root, and there is no user `nobody`; run bench as a user".to_owned(),
        )
    })
}
