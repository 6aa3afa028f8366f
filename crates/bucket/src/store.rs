// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store of objects, as this program needs one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flashfront_object::{Fault, Name};

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its whole name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// Does one request at a time, and waits for it. Names are whole: with the volume's prefix.
pub trait Store: fmt::Debug + Send + Sync {
    /// Stores an object. With `create` only if the name is free, else the fault is
    /// [`Fault::Taken`]. When this has succeeded, the object survives a power cut.
    ///
    /// # Errors
    /// [`Fault`].
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault>;

    /// Fetches an object, or a range of it: first byte and length. Of an object that is too short
    /// what there is.
    ///
    /// # Errors
    /// [`Fault`].
    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault>;

    /// Lists the objects whose names begin so.
    ///
    /// # Errors
    /// [`Fault`].
    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault>;

    /// Finds a volume whose own prefix begins so: the first one of which there is an object.
    /// Folders that can't be read are passed over.
    ///
    /// # Errors
    /// [`Fault`].
    fn volume_below(&self, prefix: &str) -> Result<Option<String>, Fault> {
        Ok(self.list(prefix)?.iter().find_map(|it| volume_of(&it.name, prefix)))
    }

    /// Deletes an object. That it is absent is no fault.
    ///
    /// # Errors
    /// [`Fault`].
    fn delete(&self, name: &str) -> Result<(), Fault>;
}

/// The prefix of the volume whose object has this whole name, if it begins so.
pub(crate) fn volume_of(whole: &str, prefix: &str) -> Option<String> {
    let (folder, _) = whole.rsplit_once('/')?;
    let (volume, _) = folder.rsplit_once('/')?;
    let is_object = whole[volume.len() + 1..].parse::<Name>().is_ok();
    (is_object && volume.starts_with(prefix)).then(|| volume.to_owned())
}

/// A store in RAM, for tests.
#[derive(Debug, Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<String, Arc<Vec<u8>>>>,
}

impl Memory {
    fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Vec<u8>>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Memory {
    fn put(&self, name: &str, body: &Arc<Vec<u8>>, create: bool) -> Result<(), Fault> {
        let mut objects = self.objects();
        if create && objects.contains_key(name) {
            return Err(Fault::Taken);
        }
        objects.insert(name.to_owned(), Arc::clone(body));
        Ok(())
    }

    fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<Vec<u8>, Fault> {
        let objects = self.objects();
        let all = objects.get(name).ok_or(Fault::Absent)?;
        let (at, len) = range.unwrap_or((0, all.len() as u64));
        let from = all.len().min(at as usize);
        Ok(all[from..all.len().min(from.saturating_add(len as usize))].to_vec())
    }

    fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        let objects = self.objects();
        let found = objects.iter().filter(|(name, _)| name.starts_with(prefix));
        Ok(found.map(|(name, body)| Listed { name: name.clone(), bytes: body.len() as u64 }).collect())
    }

    fn delete(&self, name: &str) -> Result<(), Fault> {
        self.objects().remove(name);
        Ok(())
    }
}
