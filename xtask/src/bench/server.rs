// SPDX-License-Identifier: MIT OR Apache-2.0
//! The servers under test, and fio, their client.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::{Failed, example, packaged, run, stdout_of};

/// Linux counts processor time in hundredths of a second (USER_HZ) on all that Flashfront runs on.
const US_PER_TICK: f64 = 10_000.0;

/// A server that is killed when it is let go.
pub(super) struct Server {
    child: Child,
    pub(super) socket: PathBuf,
}

impl Server {
    /// Processor time of the whole process so far, user and system, in microseconds.
    pub(super) fn cpu_us(&self) -> Result<f64, Failed> {
        cpu_us(format!("/proc/{}/stat", self.child.id()).into())
    }

    /// Processor time of the first thread alone: the engine's in ours.
    pub(super) fn first_thread_us(&self) -> Result<f64, Failed> {
        cpu_us(format!("/proc/{0}/task/{0}/stat", self.child.id()).into())
    }
}

fn cpu_us(path: PathBuf) -> Result<f64, Failed> {
    let stat = std::fs::read_to_string(&path).map_err(|error| Failed::File { path, error })?;
    // The name is in brackets, and may hold anything; after it utime and stime are the 12th and
    // 13th field (proc(5)).
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    Ok(fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() * US_PER_TICK)
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Formats a cache and serves it, with sequential bypass off and these options. The cache's name
/// tells servers apart.
pub(super) fn ours(dir: &Path, cache: &Path, origin: &Path, more: &[&str]) -> Result<Server, Failed> {
    ours_knowing(&[], dir, cache, origin, more)
}

/// Formats and serves as [`ours`] does, with these variables of the environment.
pub(super) fn ours_knowing(
    variables: &[(&str, String)],
    dir: &Path,
    cache: &Path,
    origin: &Path,
    more: &[&str],
) -> Result<Server, Failed> {
    let flashfront = packaged()?;
    let known = |command: &mut Command| _ = command.envs(variables.iter().map(|(name, value)| (name, value)));
    let paths = ["--cache".as_ref(), cache.as_os_str(), "--origin".as_ref(), origin.as_os_str()];
    let mut format = Command::new(&flashfront);
    known(&mut format);
    run(format.arg("format").args(paths).arg("--force").stdout(Stdio::null()))?;
    let socket = cache.with_extension("sock");
    let mut serve = Command::new(&flashfront);
    known(&mut serve);
    let child = serve
        .arg("serve")
        .args(paths)
        .arg(format!("--nbd=unix:{}", socket.display()))
        .arg("--control")
        .arg(control(cache))
        .arg("--state")
        .arg(dir)
        .args(["--sequential-bypass", "0"])
        .args(more)
        .stdout(Stdio::piped())
        .spawn();
    let mut server = Server { child: started("flashfront", child)?, socket };
    if let Some(stdout) = server.child.stdout.take() {
        let mut ready = String::new();
        let path = server.socket.clone();
        BufReader::new(stdout).read_line(&mut ready).map_err(|error| Failed::File { path, error })?;
    }
    Ok(server)
}

/// The control socket of [`ours`].
pub(super) fn control(cache: &Path) -> PathBuf {
    cache.with_extension("control")
}

/// `nbdkit file` on a file, with these options.
pub(super) fn nbdkit(file: &Path, more: &[&str]) -> Result<Server, Failed> {
    let socket = file.with_extension("sock");
    let child = Command::new("nbdkit").arg("-f").arg("-U").arg(&socket).arg("file").arg(file).args(more).spawn();
    let server = Server { child: started("nbdkit", child)?, socket };
    wait_for(&server);
    Ok(server)
}

/// Starts a server with nothing behind its socket: as fast as a server of our shape can be with
/// many small requests in flight.
pub(super) fn echo(dir: &Path) -> Result<Server, Failed> {
    let program = example("flashfront-serve", "echo")?;
    let socket = dir.join("echo.sock");
    let child = Command::new(program).arg(&socket).spawn();
    let server = Server { child: started("echo", child)?, socket };
    wait_for(&server);
    Ok(server)
}

/// `qemu-nbd` on a file, with direct I/O.
pub(super) fn qemu_nbd(dir: &Path, file: &Path) -> Result<Server, Failed> {
    let socket = dir.join("qemu.sock");
    let how = ["--persistent", "--shared=4", "--format=raw", "--cache=none", "--aio=io_uring"];
    let child = Command::new("qemu-nbd").args(how).arg("--socket").arg(&socket).arg(file).spawn();
    let server = Server { child: started("qemu-nbd", child)?, socket };
    wait_for(&server);
    Ok(server)
}

fn wait_for(server: &Server) {
    while !server.socket.exists() {
        // pacing: these servers have no way to say that they listen but their sockets.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn started(program: &str, child: std::io::Result<Child>) -> Result<Child, Failed> {
    child.map_err(|error| Failed::Start { program: program.into(), error })
}

/// Runs a job on a server by NBD, as [`fio_at`] does.
pub(super) fn fio(server: &Server, size: &str, job: &[&str], field: usize) -> Result<f64, Failed> {
    let uri = format!("--uri=nbd+unix:///?socket={}", server.socket.display());
    fio_at(&["--ioengine=nbd".to_owned(), uri], size, job, field)
}

/// Runs a job at a place that these options of fio name; the field of fio's terse output (version
/// 3) that is asked for, of all its clients together.
pub(super) fn fio_at(place: &[String], size: &str, job: &[&str], field: usize) -> Result<f64, Failed> {
    let mut command = Command::new("fio");
    command
        .args(["--name=bench", "--minimal", "--randrepeat=0", "--norandommap"])
        .arg(format!("--size={size}"))
        .args(place)
        .args(job);
    let text = stdout_of(&mut command)?;
    let clients = text.lines().filter(|line| line.starts_with("3;"));
    let of = |line: &str| line.split(';').nth(field).and_then(|it| it.parse().ok()).unwrap_or(f64::NAN);
    Ok(clients.map(of).sum())
}
