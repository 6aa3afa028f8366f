// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what counts as a disturbance.

use super::*;

fn moment(stat: &str, ours: u64, processes: &[(u64, &str)], sectors: u64) -> Moment {
    let processes = processes.iter().map(|(pid, stat)| (*pid, process(stat).expect("a process"))).collect();
    Moment { ours, processes, sectors: Some(sectors), ..Moment::of_stat(stat) }
}

fn stat(name: &str, parent: u64, flags: u64, ticks: u64) -> String {
    format!("7 ({name}) S {parent} 7 7 0 -1 {flags} 1 2 3 4 {ticks} 0 0 0 20 0 1 0 5 0 0")
}

fn watched() -> Watched {
    Watched { device: Some("/dev/x".into()), part_of_target: vec![40] }
}

#[test]
fn a_quiet_machine_is_quiet() {
    let before = moment("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1", 50, &[], 1000);
    // Ours are 300 of the 340 ticks, of 2000 in all.
    let after = moment("cpu  300 0 240 2460 0 0 0 0 0 0\n", 350, &[], 3048);
    assert_eq!(after.disturbed_since(&before, &watched(), 2, 1 << 20), Vec::<String>::new());
}

#[test]
fn who_disturbed_is_named() {
    let (cc, kernel) = (stat("cc (1) x", 1, 0, 900), stat("kworker", 2, KERNEL_THREAD, 300));
    let server = stat("nbdkit", 1, 0, 200);
    let before = moment("cpu  0 0 0 0 0 0 0 0 0 0", 0, &[], 0);
    let after = moment("cpu  1000 0 600 300 0 0 0 100 0 0", 200, &[(30, &cc), (31, &kernel), (40, &server)], 40_960);
    let why = after.disturbed_since(&before, &watched(), 2, 10 << 20);
    assert_eq!(why[0], "the hypervisor took 5.0 % of the processors' time (steal)");
    // Of 1600 busy ticks 200 are ours, 300 the kernel's and 200 the target's.
    assert_eq!(why[1], "other programs used 0.90 of 2 processors (most: cc (1) x 0.90)");
    assert_eq!(why[2], "others moved 10 MiB on /dev/x");
    assert_eq!(why.len(), 3);
}

#[test]
fn a_thread_of_the_kernel_may_change_its_name() {
    let (then, now) = (stat("kworker/0:1-events", 2, KERNEL_THREAD, 500), stat("kworker/0:1", 2, KERNEL_THREAD, 510));
    let cc = stat("cc", 1, 0, 90);
    let before = moment("cpu  0 0 500 0 0 0 0 0 0 0", 0, &[(31, &then)], 0);
    let after = moment("cpu  90 0 510 100 0 0 0 0 0 0", 0, &[(30, &cc), (31, &now)], 0);
    let why = after.disturbed_since(&before, &watched(), 2, 0);
    assert_eq!(why, ["other programs used 0.90 of 2 processors (most: cc 0.90)"]);
}

#[test]
fn whoever_listens_at_a_socket_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert_eq!(listeners(path.to_str().unwrap()), [u64::from(std::process::id())]);
    assert!(listeners("/nowhere").is_empty());
}

#[test]
fn this_machine_can_be_looked_at() {
    let moment = Moment::now(&Watched::default());
    assert!(moment.processes.contains_key(&u64::from(std::process::id())) && moment.total > 0);
}
