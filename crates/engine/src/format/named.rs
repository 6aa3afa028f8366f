// SPDX-License-Identifier: MIT OR Apache-2.0
//! A superblock and its table of volumes: which table it names, and how both are read and written.

use alloc::vec::Vec;

use super::block::BLOCK_LEN;
use super::superblock::{Superblock, SuperblockError};
use super::volumes::{Found, IDS_END, NAME_BYTES_MAX, NAME_BYTES_MAX_V1, ORIGINS_MAX, OriginRecord, TableError};
use crate::fact::types::OriginId;

impl Superblock {
    /// The format's version.
    #[must_use]
    pub const fn version(&self) -> u32 {
        match (&self.grown, &self.table) {
            (Some(_), _) => 3,
            (None, Some(_)) => 2,
            (None, None) => 1,
        }
    }

    /// The most volumes of this cache.
    #[must_use]
    pub fn volumes_max(&self) -> usize {
        self.table.map_or(ORIGINS_MAX, |table| table.room())
    }

    /// The longest name of a volume of this cache, in bytes.
    #[must_use]
    pub const fn name_bytes_max(&self) -> usize {
        if self.table.is_some() { NAME_BYTES_MAX } else { NAME_BYTES_MAX_V1 }
    }

    /// The id of the next volume, if there is one left. With version 1, which has no place to
    /// remember which ids were used, there is none.
    #[must_use]
    pub fn next_id(&self) -> Option<OriginId> {
        self.table.filter(|table| table.next_id < IDS_END).map(|table| OriginId(table.next_id))
    }

    /// The volume of this id.
    #[must_use]
    pub fn origin(&self, id: OriginId) -> Option<&OriginRecord> {
        self.origins.binary_search_by_key(&id, |record| record.id).ok().map(|at| &self.origins[at])
    }

    /// The volume of this id, to change it.
    pub fn origin_mut(&mut self, id: OriginId) -> Option<&mut OriginRecord> {
        self.origins.binary_search_by_key(&id, |record| record.id).ok().map(|at| &mut self.origins[at])
    }

    /// The volumes are about to change: with version 2 their next table goes to the other area.
    /// All copies of the superblock must name this one now.
    pub fn begin_table(&mut self) {
        if let Some(table) = &mut self.table {
            table.number += 1;
        }
    }

    /// The table's first byte on the device, and its blocks: to be durable before a superblock that
    /// names it is written. `None` with version 1.
    #[must_use]
    pub fn encode_table(&self) -> Option<(u64, Vec<u8>)> {
        let table = self.table?;
        Some((table.offset(table.number), table.encode(&self.origins, self.cache_tag())))
    }

    /// Reads the table that belongs to this superblock, with `read` from the same device, and takes
    /// its volumes. With version 1 there is nothing to read.
    ///
    /// The next table counts if the superblock's own is not there. One copy of the superblock, or
    /// one member, can lag behind: after two power cuts in a row, each when tables were written.
    ///
    /// # Errors
    /// When no table can be used. An error of `read` is kept if it is the only reason.
    pub fn read_table<E>(
        &mut self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), TableError<E>> {
        let Some(table) = self.table else { return Ok(()) };
        let (mut newer, mut failed) = (None::<Found>, None);
        for number in [table.number, table.number + 1] {
            let found = table.read_area(number, self.cache_tag(), &mut read);
            match found {
                Ok(Some(found)) if found.number == table.number => {
                    self.take(found);
                    return Ok(());
                }
                Ok(Some(found)) if found.number > table.number => {
                    let lower = newer.take().filter(|it| it.number < found.number);
                    newer = Some(lower.unwrap_or(found));
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        }
        match (newer, failed) {
            (Some(found), _) => {
                self.take(found);
                Ok(())
            }
            (None, Some(error)) => Err(TableError::Unreadable(error)),
            (None, None) => Err(TableError::Damaged { offset: table.offset(table.number) }),
        }
    }

    /// The superblock and its table from an image of a device, by the first copy alone.
    ///
    /// # Errors
    /// When they are not whole.
    pub fn of_image(bytes: &[u8]) -> Result<Self, SuperblockError> {
        let mut it = Self::decode(bytes.get(..BLOCK_LEN).unwrap_or_default())?;
        it.read_table(|offset, block| {
            let at = usize::try_from(offset).map_err(|_| ())?;
            block.copy_from_slice(bytes.get(at..at + block.len()).ok_or(())?);
            Ok::<(), ()>(())
        })?;
        Ok(it)
    }

    fn take(&mut self, found: Found) {
        if let Some(table) = &mut self.table {
            (table.number, table.next_id) = (found.number, found.next_id);
        }
        self.origins = found.origins;
    }
}

impl<E> From<TableError<E>> for SuperblockError {
    fn from(error: TableError<E>) -> Self {
        Self::Table { offset: if let TableError::Damaged { offset } = error { offset } else { 0 } }
    }
}
