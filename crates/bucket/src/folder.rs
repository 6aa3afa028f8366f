// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store in a file system: each object is a file.
//!
//! An object appears whole or not at all. It is written under another name, made durable, and then
//! linked or renamed. The folder is made durable, too.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flashfront_object::Fault;

use crate::store::{Listed, Store, volume_of};

/// Files that are being written begin so.
const UNFINISHED: &str = ".unfinished-";

/// All files below the root. Names are paths without the first slash.
#[derive(Debug)]
pub(crate) struct Folder {
    root: PathBuf,
    count: AtomicU64,
}

impl Folder {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), count: AtomicU64::new(0) }
    }

    fn put_now(&self, path: &Path, body: &[u8], create: bool) -> io::Result<()> {
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let unfinished = folder.join(format!("{UNFINISHED}{}-{count}", std::process::id()));
        let result = (|| {
            let mut file = File::create(&unfinished)?;
            file.write_all(body)?;
            file.sync_all()?;
            if create { fs::hard_link(&unfinished, path) } else { fs::rename(&unfinished, path) }
        })();
        if create || result.is_err() {
            // A file that is left over has no name that anybody looks for.
            let _ = fs::remove_file(&unfinished);
        }
        result?;
        // The folder, and those above that may be new.
        for above in folder.ancestors().take(3) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }
}

fn fault(error: &io::Error) -> Fault {
    match error.kind() {
        ErrorKind::NotFound => Fault::Absent,
        ErrorKind::AlreadyExists => Fault::Taken,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem | ErrorKind::NotADirectory => {
            Fault::Refused(error.to_string())
        }
        _ => Fault::Away(error.to_string()),
    }
}

impl Store for Folder {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        self.put_now(&self.root.join(name), body, create).map_err(|error| fault(&error))
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        let get = || {
            let file = File::open(self.root.join(name))?;
            let whole = file.metadata()?.len();
            let (at, len) = range.unwrap_or((0, whole));
            let mut bytes = vec![0; whole.saturating_sub(at).min(len) as usize];
            file.read_exact_at(&mut bytes, at)?;
            Ok(bytes)
        };
        get().map_err(|error: io::Error| fault(&error))
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        let (folder, _) = prefix.rsplit_once('/').unwrap_or_default();
        let list = || {
            let mut found = Vec::new();
            for entry in fs::read_dir(self.root.join(folder))? {
                let entry = entry?;
                let file = entry.file_name().to_string_lossy().into_owned();
                let name = format!("{folder}/{file}");
                if file.starts_with(UNFINISHED) || !name.starts_with(prefix) {
                    continue;
                }
                match entry.metadata() {
                    Ok(meta) if meta.is_file() => found.push(Listed { name, bytes: meta.len() }),
                    Ok(_) => {}
                    // Deleted meanwhile.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(found)
        };
        match list().map_err(|error| fault(&error)) {
            Err(Fault::Absent) => Ok(Vec::new()),
            result => result,
        }
    }

    fn volume_below(&self, prefix: &str) -> Result<Option<String>, Fault> {
        let mut folders = vec![prefix.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(self.root.join(&folder)) else { continue };
            for entry in entries.flatten() {
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(name);
                } else if let Some(volume) = volume_of(&name, prefix) {
                    return Ok(Some(volume));
                }
            }
        }
        Ok(None)
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        match fs::remove_file(self.root.join(name)).map_err(|error| fault(&error)) {
            Err(Fault::Absent) => Ok(()),
            result => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_objects_and_a_name_has_one_creator() {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path());
        assert_eq!(store.get("a/b/one", None), Err(Fault::Absent));
        assert_eq!(store.list("a/b/").unwrap(), []);
        store.put("a/b/one", &Arc::new(b"0123456789".to_vec()), true).unwrap();
        let other = Arc::new(b"other".to_vec());
        assert_eq!(store.put("a/b/one", &other, true), Err(Fault::Taken));
        assert_eq!(store.get("a/b/one", Some((2, 3))).unwrap(), b"234");
        assert_eq!(store.get("a/b/one", Some((8, 30))).unwrap(), b"89");
        store.put("a/b/one", &other, false).unwrap();
        assert_eq!(store.get("a/b/one", None).unwrap(), b"other");
        assert_eq!(store.list("a/b/").unwrap(), [Listed { name: "a/b/one".to_owned(), bytes: 5 }]);
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1, "nothing unfinished is left");
        store.delete("a/b/one").unwrap();
        store.delete("a/b/one").unwrap();
    }
}
