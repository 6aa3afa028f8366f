// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that acts run: started without a shell, ended when the user asks for an end.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::BenchError;

/// How often a running program is looked after.
const LOOK: Duration = Duration::from_millis(5);

/// A program that runs.
pub(crate) struct Running {
    what: String,
    child: Child,
    said: JoinHandle<String>,
    complained: JoinHandle<String>,
    input: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    pub(crate) fn start(command: &[String]) -> Result<Self, BenchError> {
        Self::begin(command, Stdio::null())
    }

    /// Starts a program, and writes to its input meanwhile.
    pub(crate) fn start_with_input(
        command: &[String],
        write: impl FnOnce(&mut dyn Write) -> io::Result<()> + Send + 'static,
    ) -> Result<Self, BenchError> {
        let mut running = Self::begin(command, Stdio::piped())?;
        let input: Option<ChildStdin> = running.child.stdin.take();
        running.input = input.map(|input| thread::spawn(move || write(&mut io::BufWriter::new(input))));
        Ok(running)
    }

    fn begin(command: &[String], input: Stdio) -> Result<Self, BenchError> {
        let what = command.join(" ");
        let Some((program, arguments)) = command.split_first() else {
            return Err(BenchError::Failed("no command".to_owned()));
        };
        let mut child = Command::new(program);
        child.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Neither another repository (in a hook of git) nor the user's settings change what is
        // measured.
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
            child.env_remove(name);
        }
        child.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C");
        let mut child = child.spawn().map_err(|error| BenchError::Failed(format!("{what}: {error}")))?;
        let (said, complained) = (text_of(child.stdout.take()), text_of(child.stderr.take()));
        Ok(Self { what, child, said, complained, input: None })
    }

    /// Waits for the end; what the program printed.
    pub(crate) fn wait(mut self, stop: &dyn Fn() -> bool) -> Result<String, BenchError> {
        let status = loop {
            let ended = self.child.try_wait().map_err(|error| BenchError::Failed(format!("{}: {error}", self.what)))?;
            if let Some(status) = ended {
                break status;
            }
            if stop() {
                // The child may have ended by itself just now: then neither call finds one.
                let _ = self.child.kill();
                let _ = self.child.wait();
                return Err(BenchError::Interrupted);
            }
            thread::sleep(LOOK);
        };
        let (said, complained) = (self.said.join().unwrap_or_default(), self.complained.join().unwrap_or_default());
        // A program that fails says more than the broken pipe to it.
        let input = self.input.and_then(|it| it.join().ok()).unwrap_or(Ok(()));
        if status.success() {
            input.map_err(|error| BenchError::Failed(format!("{}: {error}", self.what)))?;
            return Ok(said);
        }
        Err(BenchError::Failed(format!("{}: {status}: {}", self.what, complained.trim())))
    }
}

fn text_of(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What came before an error is what can be told.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
