// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a policy describes itself, and the registries that list them.
//!
//! A policy is one file with a `SPEC` and one line in its folder's `registry!`. That line gives the
//! name in CLI and config, the help text, and the conformance tests.

/// What a policy says of itself.
#[derive(Clone, Copy, Debug)]
pub struct Spec<Build> {
    /// Its name in CLI and config.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// The paper or system that it comes from.
    pub source: &'static str,
    /// Makes one.
    pub build: Build,
}

/// Declares the policies of a folder: the modules, and `ALL`, with the default first.
macro_rules! registry {
    ($build:ty: $($module:ident),+ $(,)?) => {
        $(mod $module;)+

        /// All of them; the first is the default.
        pub static ALL: &[$crate::policy::Spec<$build>] = &[$($module::SPEC),+];

        /// The one of that name.
        #[must_use]
        pub fn by_name(name: &str) -> Option<&'static $crate::policy::Spec<$build>> {
            ALL.iter().find(|spec| spec.name == name)
        }
    };
}
pub(crate) use registry;
