// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a package, in a folder, as they will lie below `/`.
//!
//! Modes are set and not inherited. Owners and times are dpkg-deb's affair: root, and those of the
//! last commit, so that two builds of one commit are equal.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Failed, root, run, stdout_of};

/// The folder.
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty one.
    pub(super) fn new(root: PathBuf) -> Result<Self, Failed> {
        let tree = Self { root };
        tree.folder("DEBIAN")?;
        Ok(tree)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder of a file, and says where the file belongs.
    pub(super) fn place(&self, path: &str) -> Result<PathBuf, Failed> {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder)?;
        }
        Ok(self.root.join(path))
    }

    /// Makes a folder, and those above it.
    pub(super) fn folder(&self, path: &str) -> Result<(), Failed> {
        let mut folder = self.root.clone();
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
        set_mode(&folder, 0o755)?;
        for part in path.split('/') {
            folder.push(part);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder)(error)),
                _ => set_mode(&folder, 0o755)?,
            }
        }
        Ok(())
    }

    /// Writes a file.
    pub(super) fn write(&self, path: &str, mode: u32, content: impl AsRef<[u8]>) -> Result<(), Failed> {
        let place = self.place(path)?;
        fs::write(&place, content).map_err(failed(&place))?;
        set_mode(&place, mode)
    }

    /// Takes a file of the repository.
    pub(super) fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<(), Failed> {
        self.write(path, mode, fs::read(from).map_err(failed(from))?)
    }

    /// Compresses a file as Debian wants manuals and changelogs: the result has no time in it.
    pub(super) fn compress(&self, path: &str) -> Result<(), Failed> {
        run(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(self.root.join(path)))
    }

    /// Lists all files, as paths without a slash at their beginning; files for dpkg itself are left
    /// out.
    pub(super) fn files(&self) -> Result<Vec<String>, Failed> {
        let list = stdout_of(Command::new("find").args([".", "-type", "f"]).current_dir(&self.root))?;
        let mut files: Vec<String> = list.lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
        files.retain(|file| !file.starts_with("DEBIAN/"));
        files.sort();
        Ok(files)
    }

    /// Makes the package.
    pub(super) fn pack(&self, into: &Path, level: &str) -> Result<(), Failed> {
        let mut pack = Command::new("dpkg-deb");
        pack.args(["--root-owner-group", "-Zxz", level, "--build"]).arg(&self.root).arg(into);
        // dpkg-deb says on stdout what it makes; ours has the path alone.
        stdout_of(pack.env("SOURCE_DATE_EPOCH", commit("%ct", "0")?))?;
        Ok(())
    }
}

/// Something about the last commit; `otherwise` where the sources are no repository of git.
pub(super) fn commit(format: &str, otherwise: &str) -> Result<String, Failed> {
    let mut git = Command::new("git");
    git.args(["log", "-1", &format!("--format={format}")]).current_dir(root());
    match git.stderr(std::process::Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        _ => Ok(otherwise.to_owned()),
    }
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), Failed> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed(path))
}

/// Makes the error of a file, for `map_err`.
pub(super) fn failed(path: &Path) -> impl Fn(io::Error) -> Failed {
    let path = path.to_owned();
    move |error| Failed::File { path: path.clone(), error }
}
