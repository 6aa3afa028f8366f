// SPDX-License-Identifier: MIT OR Apache-2.0
//! The devices that simulations know by name.

use super::hdd::HddSpec;
use super::kind::ModelSpec;
use super::ssd::{Fill, SsdSpec};

/// A device that can be had.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The name in scenarios.
    pub name: &'static str,
    /// The summary for people.
    pub summary: &'static str,
    /// The model.
    pub model: ModelSpec,
    /// The size.
    pub size_bytes: u64,
}

/// All known devices.
#[must_use]
pub fn known() -> Vec<Known> {
    let hdd = ModelSpec::Hdd(HddSpec::default());
    let uncached = ModelSpec::Hdd(HddSpec { write_cache_bytes: 0, ..HddSpec::default() });
    let (hdd_bytes, ssd_bytes, nvme_bytes) = (7_814_037_168 * 512, 500_118_192 * 512, 2_000_398_934_016);
    let it = |name, summary, model, size_bytes| Known { name, summary, model, size_bytes };
    vec![
        it("wd-re-4tb", "hard disk, 4 TB, 7200 rpm, write cache on (calibrated)", hdd, hdd_bytes),
        it("wd-re-4tb-uncached", "the same, write cache off", uncached, hdd_bytes),
        it(
            "samsung-850-pro",
            "SATA SSD, 256 GB, erased before use (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Clean)),
            ssd_bytes,
        ),
        it(
            "samsung-850-pro-full",
            "the same, all of it written before (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_850_pro(Fill::Full)),
            ssd_bytes,
        ),
        it(
            "samsung-840-pro",
            "SATA SSD, 256 GB, on a port of 3 Gbit/s (calibrated)",
            ModelSpec::Ssd(SsdSpec::samsung_840_pro()),
            ssd_bytes,
        ),
        it(
            "intel-p4500",
            "NVMe SSD, 2 TB, power-loss protection, all of it written before (after its data sheet)",
            ModelSpec::Ssd(SsdSpec::intel_p4500(Fill::Full)),
            nvme_bytes,
        ),
    ]
}
