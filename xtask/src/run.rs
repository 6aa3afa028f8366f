// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs other programs from the root of the repository, and says which one failed.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a verb failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// A program could not be started.
    Start { program: String, error: std::io::Error },
    /// A program ended badly; it has said why itself.
    Exit { line: String, code: Option<i32> },
    /// A file could not be read or written.
    File { path: PathBuf, error: std::io::Error },
    /// An argument that makes no sense.
    Usage(String),
    /// This many findings, printed already.
    Findings(usize),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { program, error } => {
                write!(f, "can't start {program}: {error}; install it")
            }
            Self::Exit { line, code: Some(code) } => write!(f, "exit code {code} from: {line}"),
            Self::Exit { line, code: None } => write!(f, "killed by a signal: {line}"),
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Usage(what) => write!(f, "{what}"),
            Self::Findings(count) => write!(f, "{count} findings; see above"),
        }
    }
}

/// Prints a text; a reader that has gone, as `head` does, is no error.
pub(crate) fn print(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| Failed::File { path: "stdout".into(), error }),
    }
}

/// The root of the repository: the folder above xtask's.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// Starts cargo in the root; if cargo runs us, the same cargo.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// The folder in which cargo puts its results.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Builds the release binary; or takes another one that `FLASHFRONT_BIN` names.
pub(crate) fn flashfront() -> Result<PathBuf, Failed> {
    if let Some(program) = std::env::var_os("FLASHFRONT_BIN") {
        return Ok(program.into());
    }
    run(&mut cargo(["build", "--release", "-p", "flashfront-cli"]))?;
    Ok(target().join("release/flashfront"))
}

/// Builds the program as the package has it; or takes another one that `FLASHFRONT_BIN` names.
pub(crate) fn packaged() -> Result<PathBuf, Failed> {
    if let Some(program) = std::env::var_os("FLASHFRONT_BIN") {
        return Ok(program.into());
    }
    run(&mut cargo(["build", "--profile=dist", "-p", "flashfront-cli"]))?;
    Ok(target().join("dist/flashfront"))
}

/// Builds an example of a package, with the optimizations of the packaged program.
pub(crate) fn example(package: &str, name: &str) -> Result<PathBuf, Failed> {
    run(&mut cargo(["build", "--profile=dist", "-p", package, "--example", name]))?;
    Ok(target().join("dist/examples").join(name))
}

/// A program of the workspace's own, freshly built as tests are. With the features of the whole
/// workspace: it shares what tests have built.
pub(crate) fn program(name: &str, features: &[&str]) -> Result<PathBuf, Failed> {
    run(cargo(["build", "--quiet", "--workspace", "--bin", name]).args(features))?;
    Ok(target().join("debug").join(name))
}

/// Starts `command`.
pub(crate) fn spawn(command: &mut Command) -> Result<std::process::Child, Failed> {
    command.spawn().map_err(|error| not_started(command, error))
}

/// Runs `command` with our own stdout and stderr.
pub(crate) fn run(command: &mut Command) -> Result<(), Failed> {
    let status = command.status().map_err(|error| not_started(command, error))?;
    if status.success() { Ok(()) } else { Err(ended(command, status.code())) }
}

/// Runs `command`; its stdout, as text.
pub(crate) fn stdout_of(command: &mut Command) -> Result<String, Failed> {
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().map_err(|error| not_started(command, error))?;
    if !output.status.success() {
        return Err(ended(command, output.status.code()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The compiler's own name for this machine.
pub(crate) fn host() -> Result<String, Failed> {
    let version = stdout_of(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.expect("rustc -vV names its host").to_owned())
}

/// Reads a file of the repository as text.
pub(crate) fn read(path: &Path) -> Result<String, Failed> {
    std::fs::read_to_string(path).map_err(|error| Failed::File { path: path.into(), error })
}

fn not_started(command: &Command, error: std::io::Error) -> Failed {
    Failed::Start { program: command.get_program().to_string_lossy().into_owned(), error }
}

fn ended(command: &Command, code: Option<i32>) -> Failed {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    Failed::Exit { line, code }
}
