// SPDX-License-Identifier: MIT OR Apache-2.0
//! Says what an I/O engine of fio means for a job on the simulated volume.

/// The meaning of an engine here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// The engine has one request in flight.
    Synchronous,
    /// The engine has `iodepth` requests in flight.
    Asynchronous,
    /// The engine asks no device for data, so there is nothing to simulate.
    AsksNothing,
}

/// Engines of block devices and files, or of storage whose place the volume takes, with one request
/// in flight.
const SYNCHRONOUS: &[&str] = &[
    "dev-dax",
    "gfapi",
    "http",
    "ime_psync",
    "ime_psyncv",
    "libcufile",
    "libhdfs",
    "libhipfile",
    "libpmem",
    "libzbc",
    "mmap",
    "mtd",
    "pmemblk",
    "psync",
    "pvsync",
    "pvsync2",
    "sg",
    "splice",
    "sync",
    "vsync",
];

/// Engines that have more than one request in flight.
const ASYNCHRONOUS: &[&str] = &[
    "cpp_null",
    "dfs",
    "external",
    "gfapi_async",
    "guasi",
    "ime_aio",
    "io_uring",
    "io_uring_cmd",
    "libaio",
    "libblkio",
    "libiscsi",
    "nbd",
    "nfs",
    "null",
    "posixaio",
    "rados",
    "rbd",
    "solarisaio",
    "windowsaio",
    "xnvme",
];

/// Engines that burn processor time, move data between hosts, or make and remove files.
const ASKS_NOTHING: &[&str] = &[
    "cpuio",
    "dircreate",
    "dirdelete",
    "dirstat",
    "e4defrag",
    "exec",
    "falloc",
    "filecreate",
    "filedelete",
    "filestat",
    "filexattr",
    "ftruncate",
    "librpma_apm_client",
    "librpma_apm_server",
    "librpma_gpspm_client",
    "librpma_gpspm_server",
    "net",
    "netsplice",
    "rdma",
];

/// Engines of storage that is neither a file nor a device of this machine: the volume takes its
/// place.
const ELSEWHERE: &[&str] = &[
    "cpp_null",
    "dev-dax",
    "dfs",
    "io_uring_cmd",
    "libblkio",
    "libhdfs",
    "libiscsi",
    "libzbc",
    "mtd",
    "nbd",
    "null",
    "pmemblk",
    "rados",
    "rbd",
    "sg",
    "xnvme",
];

/// Whether the volume takes the place of what an engine reads and writes.
pub(super) fn is_elsewhere(name: &str) -> bool {
    ELSEWHERE.contains(&name)
}

impl Engine {
    /// The engine of a name, which may be followed by a path (`external:PATH`).
    pub(super) fn named(text: &str) -> Option<Self> {
        let name = text.split_once(':').map_or(text, |(name, _)| name);
        match name {
            _ if SYNCHRONOUS.contains(&name) => Some(Self::Synchronous),
            _ if ASYNCHRONOUS.contains(&name) => Some(Self::Asynchronous),
            _ if ASKS_NOTHING.contains(&name) => Some(Self::AsksNothing),
            _ => None,
        }
    }
}
