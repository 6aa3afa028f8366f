// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `flashfront` command: one verb, one file.
//!
//! Verbs read their arguments, call the library and print. What scripts read goes to stdout, all
//! else to stderr. Exit code: 0 done, 1 not done (or damage found), 2 wrong usage.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};

use terminal::{Paint, Tone};

mod advise;
mod assert;
mod bench;
mod cache;
mod check;
mod choice;
mod columns;
mod completions;
mod csv;
mod destage;
mod detach;
mod drain;
mod dump;
mod emulate;
mod format;
mod human;
mod inject;
mod interrupt;
mod log;
mod man;
mod mirror;
mod object;
mod prefetch;
mod progress;
mod record;
#[cfg(test)]
mod reference;
mod repair;
mod serve;
mod service;
mod set;
mod sim;
mod status;
mod stopping;
mod terminal;
mod top;
mod trace;
mod r#try;
mod upgrade;
mod usage;
mod volume;

#[global_allocator]
static TABLES: flashfront_device::Tables = flashfront_device::Tables;

/// Puts a fast device in front of a slow one and serves both as one block device.
#[derive(Debug, Parser)]
#[command(name = "flashfront", version, propagate_version = true, max_term_width = 80, after_help = EXAMPLES)]
struct Cli {
    /// Say more on stderr (-v what it does, -vv how).
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = BEHIND_A_VERBS_OWN)]
    verbose: u8,
    /// Say only what went wrong on stderr. Results, on stdout, are printed all the same.
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = BEHIND_A_VERBS_OWN)]
    quiet: bool,
    #[command(subcommand)]
    verb: Verb,
}

/// The display order of these two options in the help of a verb: behind the verb's own.
///
/// They are the first and second here, and would else come behind its first and second.
const BEHIND_A_VERBS_OWN: usize = 900;

const EXAMPLES: &str = "\
First steps:
  flashfront try             see in a minute what a cache does; no root needed
  flashfront advise TRACE    would a cache help, how large, and in which mode

A cached volume:
  flashfront format --cache /dev/nvme0n1p4 --origin /dev/sdb
  flashfront serve  --cache /dev/nvme0n1p4 --origin /dev/sdb \\
      --nbd unix:/run/disk.sock
  nbdfuse, qemu or nbd-client connect to the URI that `serve` prints

Taking the cache off again:
  flashfront drain && kill -TERM PID      which `flashfront status` tells
  flashfront detach --cache /dev/nvme0n1p4 --origin /dev/sdb";

#[derive(Debug, Subcommand)]
enum Verb {
    Try(r#try::Try),
    Format(format::Format),
    Serve(Box<serve::Serve>),
    Status(status::Status),
    Top(top::Top),
    Set(set::Set),
    Volume(volume::Volume),
    Cache(cache::Cache),
    Drain(drain::Drain),
    Prefetch(prefetch::Prefetch),
    Upgrade(upgrade::Upgrade),
    Mirror(mirror::Mirror),
    Detach(detach::Detach),
    Destage(destage::Destage),
    Check(check::Check),
    Repair(repair::Repair),
    Dump(dump::Dump),
    Object(object::Object),
    Record(record::Record),
    Advise(Box<advise::Advise>),
    Bench(Box<bench::Bench>),
    Sim(sim::Sim),
    Man(man::Man),
    Completions(completions::Completions),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // A daemon's log is its news. Other verbs tell only what is wrong. The daemons of the demo and
    // of `bench` have no operator.
    let usual = match cli.verb {
        Verb::Serve(_) => 1,
        Verb::Try(_) | Verb::Bench(_) => -1,
        _ => 0,
    };
    let level = if cli.quiet { -1 } else { usual + cli.verbose.min(4) as i8 };
    let is_daemon = matches!(cli.verb, Verb::Serve(_));
    let log = log::start(level, is_daemon);
    let done = match cli.verb {
        Verb::Try(verb) => verb.run(),
        Verb::Format(verb) => verb.run(),
        Verb::Serve(verb) => verb.run((cli.quiet || cli.verbose > 0).then(|| log::level_of(level)), log.dial()),
        Verb::Status(verb) => verb.run(),
        Verb::Top(verb) => verb.run(),
        Verb::Set(verb) => verb.run(),
        Verb::Volume(verb) => verb.run(),
        Verb::Cache(verb) => verb.run(),
        Verb::Drain(verb) => verb.run(),
        Verb::Prefetch(verb) => verb.run(),
        Verb::Upgrade(verb) => verb.run(),
        Verb::Mirror(verb) => verb.run(),
        Verb::Detach(verb) => verb.run(),
        Verb::Destage(verb) => verb.run(),
        Verb::Check(verb) => verb.run(),
        Verb::Repair(verb) => verb.run(),
        Verb::Dump(verb) => verb.run(),
        Verb::Object(verb) => verb.run(),
        Verb::Record(verb) => verb.run(),
        Verb::Advise(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(cli.quiet),
        Verb::Sim(verb) => verb.run(),
        Verb::Man(verb) => verb.run(),
        Verb::Completions(verb) => verb.run(),
    };
    drop(log);
    done.unwrap_or_else(|error| {
        // A reader that has gone (`flashfront completions bash | head`) has what it wanted.
        if human::is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        // If stderr is closed or full only the exit code is left.
        let name = Paint::stderr().paint(Tone::Bad, "flashfront:");
        let _ = writeln!(std::io::stderr(), "{name} {}", human::error(&error));
        if usage::is_wrong(&error) {
            ExitCode::from(2)
        } else {
            // A daemon's end has codes of its own.
            interrupt::exit_code().filter(|_| !is_daemon).map_or(ExitCode::FAILURE, ExitCode::from)
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_and_option_is_explained() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            for arg in verb.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", verb.get_name(), arg.get_id());
            }
        }
    }

    /// Returns all commands: the program, its verbs, and theirs.
    fn commands(of: &mut clap::Command) -> Vec<clap::Command> {
        let verbs: Vec<clap::Command> = of.get_subcommands_mut().flat_map(commands).collect();
        [of.clone()].into_iter().chain(verbs).collect()
    }

    #[test]
    fn each_help_text_fits_a_terminal_of_80_columns() {
        let mut cli = Cli::command();
        cli.build();
        let all = commands(&mut cli);
        assert!(all.len() > 15, "{}", all.len());
        for mut command in all {
            let name = command.get_name().to_owned();
            for help in [command.render_help(), command.render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 80, "{name}: {} columns: {line}", line.chars().count());
                }
            }
        }
    }

    #[test]
    fn what_every_verb_has_comes_last_in_its_help() {
        let help = parse("flashfront serve --help").unwrap_err().to_string();
        let at = |option: &str| help.find(option).unwrap_or_else(|| panic!("{option} is missing in {help}"));
        for option in ["-v, --verbose", "-q, --quiet"] {
            assert!(at("--emulate-origin <DEVICE>") < at(option) && at(option) < at("-h, --help"), "{help}");
        }
    }

    #[test]
    fn the_contract_for_scripts_parses() {
        for line in [
            "flashfront try --json --seconds 20 --keep /tmp/x",
            "flashfront format --cache C --origin O --mode writethrough --force --segment 512K --lanes 2 --json",
            "flashfront serve --cache C --origin O --nbd unix:/s --control /c --http 127.0.0.1:9 --mode writeback",
            "flashfront serve --cache C --origin O --nbd tcp:0.0.0.0:10809 --insecure --accept-changed-origin",
            "flashfront serve --cache C --origin O --nbd tcp:0.0.0.0:10809 --tls-certificates D --tls-verify-peer",
            "flashfront serve --without-cache --accept-missing-dirty-data --origin O --nbd unix:/s",
            "flashfront serve --without-cache --accept-missing-dirty-data --config F",
            "flashfront serve --config /etc/flashfront.toml",
            "flashfront serve --cache C --nbd unix:/s",
            "flashfront serve --cache C --origin O --nbd unix:/s --emulate-cache intel-p4500 --emulate-origin wd-re-4tb",
            "flashfront serve --print-config",
            "flashfront status --control /c --json",
            "flashfront status --watch",
            "flashfront top --once --json --sort dirty --control /c",
            "flashfront set --control /c --mode writearound --dirty-limit 20%",
            "flashfront volume list --json --control /c",
            "flashfront volume list --cache C --json",
            "flashfront volume add --name N --origin O --cache C --mirror M --state S --json",
            "flashfront volume convert --cache C --json",
            "flashfront volume show data --control /c --json",
            "flashfront volume set data --mode writethrough --read-only --control /c --json",
            "flashfront volume add --name N --origin O --mode writethrough --read-only --control /c --json",
            "flashfront volume remove N --destage --disconnect --control /c --json",
            "flashfront volume remove N --discard-dirty",
            "flashfront volume rename N M --control /c --json",
            "flashfront drain --control /c --timeout 5min --json",
            "flashfront format --cache C --mirror M --origin O",
            "flashfront serve --cache C --mirror M --origin O --nbd unix:/s",
            "flashfront serve --cache C --without-mirror --origin O --nbd unix:/s",
            "flashfront mirror add M --force --control /c",
            "flashfront detach --cache C --mirror M --origin O",
            "flashfront detach --cache C --origin O --state S",
            "flashfront destage --cache C --origin O --state S --accept-changed-origin --json",
            "flashfront check C --json",
            "flashfront repair C --dry-run",
            "flashfront repair C --state S --yes --keep-older --json",
            "flashfront repair C --yes --drop-older",
            "flashfront dump C --json",
            "flashfront record /dev/sdb --for 1h --out F --json",
            "flashfront record --volume data --control /c --for 1h --json",
            "flashfront record --control /c",
            "flashfront advise T --json --report R",
            "flashfront advise T --origin wd-re-4tb-uncached --cache intel-p4500 --cache-size 1GiB,100GiB --shift-grid",
            "flashfront sim replay T --cache-blocks 1000 --policy all --json",
            "flashfront sim replay T U --cache-fraction 0.1,0.25 --policy flashfront,lru --format msr --page-cache-blocks 4096",
            "flashfront sim replay T --action complete --drop-echoes 20 --shift-grid --csv",
            "flashfront sim run S --systems hdd --json",
            "flashfront bench quick --target a=/dev/sdb --target fresh:writethrough --destroy-data /dev/sdb --repeats 3 --json",
            "flashfront bench caches-2015 --scale 1/64 --target f --before f=x --after f=y --out D --runtime 5s --csv",
            "flashfront bench --resume D --destroy-data /dev/sdb",
            "flashfront man",
            "flashfront man serve",
            "flashfront man sim replay",
            "flashfront completions bash",
            "flashfront completions zsh",
            "flashfront completions fish",
            "flashfront sim run --job J --origin wd-re-4tb --origin-size 1GiB --cache intel-p4500 --cache-size 1GiB",
        ] {
            parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn wrong_usage_is_refused() {
        for line in [
            "flashfront",
            "flashfront fly",
            "flashfront format --cache C",
            "flashfront format --cache C --origin O --mode fast",
            "flashfront format --cache C --origin O --segment big",
            "flashfront serve",
            "flashfront serve --cache C --mirror M --without-mirror --origin O --nbd unix:/s",
            "flashfront mirror",
            "flashfront serve --cache C --origin O --nbd http://x",
            "flashfront serve --without-cache --cache C --origin O --nbd unix:/s",
            "flashfront serve --without-cache --origin O --mode writeback --nbd unix:/s",
            "flashfront serve --without-cache",
            "flashfront serve --without-cache --accept-missing-dirty-data --origin O --nbd unix:/s --emulate-cache intel-p4500",
            "flashfront serve --accept-missing-dirty-data --cache C --origin O --nbd unix:/s",
            "flashfront top --sort size",
            "flashfront volume",
            "flashfront volume set data",
            "flashfront volume set data --read-only --writable",
            "flashfront volume add --origin O",
            "flashfront volume remove N --destage --discard-dirty",
            "flashfront set --control /c",
            "flashfront set --dirty-limit 0%",
            "flashfront try --seconds 0",
            "flashfront check",
            "flashfront destage --cache C",
            "flashfront repair",
            "flashfront repair C --json",
            "flashfront repair C --yes --dry-run",
            "flashfront repair C --keep-older --drop-older",
            "flashfront advise",
            "flashfront advise T --cache best",
            "flashfront advise T --json --csv",
            "flashfront sim",
            "flashfront bench quick",
            "flashfront bench --target /dev/sdb",
            "flashfront bench best --target fresh",
            "flashfront bench quick --target fresh --scale 2",
            "flashfront bench quick --target fresh --resume D",
            "flashfront sim replay",
            "flashfront sim replay T --policy best",
            "flashfront sim replay T --cache-fraction 1.5",
            "flashfront sim replay T --cache-blocks 0",
            "flashfront sim replay T --action merge",
            "flashfront sim replay T --cache-blocks 10 --cache-fraction 0.5",
            "flashfront sim run S --origin wd-re-4tb",
            "flashfront sim run S --cache-size 1GiB",
            "flashfront sim run S --job J",
            "flashfront completions",
            "flashfront completions tcsh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
