// SPDX-License-Identifier: MIT OR Apache-2.0
//! `flashfront completions`: the script that lets a shell complete our command line.

use std::process::ExitCode;

use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::aot;

use crate::{Cli, human};

/// Print a script with which a shell completes this command line.
///
/// The Debian package has the scripts already. Elsewhere a shell reads its script from the folder
/// that the examples name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  flashfront completions bash > ~/.local/share/bash-completion/completions/flashfront
  flashfront completions zsh > ~/.zfunc/_flashfront          with `fpath+=~/.zfunc` before `compinit`
  flashfront completions fish > ~/.config/fish/completions/flashfront.fish")]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Completions {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let shell = match self.shell {
            Shell::Bash => aot::Shell::Bash,
            Shell::Zsh => aot::Shell::Zsh,
            Shell::Fish => aot::Shell::Fish,
        };
        let mut script = Vec::new();
        aot::generate(shell, &mut Cli::command(), "flashfront", &mut script);
        human::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
