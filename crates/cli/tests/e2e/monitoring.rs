// SPDX-License-Identifier: MIT OR Apache-2.0
//! The alarms and the dashboard in `contrib/`: each metric that they name is one that the daemon
//! exports, and promtool finds them right.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::{Daemon, Disk, Form, Place, Store, Volume, free_port, get, must, skip_without, tool};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

fn read(name: &str) -> String {
    let path = contrib(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All words of a text that are the names of our metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("flashfront_")).collect()
}

/// Whether a daemon exports a metric: by the types that it names, also if there is no sample yet.
fn is_exported(exported: &str, name: &str) -> bool {
    exported.lines().filter_map(|line| line.strip_prefix("# TYPE ")).any(|line| {
        let (family, kind) = line.split_once(' ').expect("a type has a name");
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        name.strip_prefix(family).is_some_and(|ending| endings.contains(&ending))
    })
}

/// The expressions of all panels.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|it| expressions(it, found));
        }
        Value::Array(all) => all.iter().for_each(|it| expressions(it, found)),
        _ => {}
    }
}

#[test]
fn each_metric_that_alarms_and_dashboards_name_is_exported() {
    let volume = Volume::new(64, 256);
    must(volume.format().args(["--mode", "writethrough"]));
    let http = free_port();
    let daemon = Daemon::spawn(volume.serve().args(["--http", &format!("127.0.0.1:{http}")]), &volume.log);
    daemon.ready();
    // What another size would change is told when enough was asked for, of what no cache could
    // hold.
    let (mut client, mut bytes) = (volume.connect(), vec![0; 256 << 10]);
    for nth in 0..2048 {
        client.read_at(nth * 397 % 1024 * (256 << 10), &mut bytes).expect("the volume can be read");
    }
    let mut exported = get(http, "/metrics");
    drop(client);
    daemon.stop();
    // Only volumes in object stores have metrics of these.
    let mut disk = Disk::new(Store::Folder, Form::PLAIN);
    let mut serve = disk.volume.serve();
    disk.volume.start_by(serve.args(["--http", &format!("127.0.0.1:{http}")]));
    exported.push_str(&get(http, "/metrics"));
    disk.volume.stop();
    for file in ["grafana/flashfront.json", "prometheus/flashfront.rules.yml", "prometheus/flashfront.rules.test.yml"] {
        let text = read(file);
        let names = named(&text);
        assert!(names.len() >= 20, "{file} names {} metrics", names.len());
        for name in names {
            assert!(is_exported(&exported, name), "{file} names {name}, which the daemon does not export");
        }
    }
    assert!(!is_exported(&exported, "flashfront_nothing") && !is_exported(&exported, "flashfront_writes"));
}

#[test]
fn each_alarm_goes_off_when_it_should_and_not_otherwise() {
    let (rules, tests) = (read("prometheus/flashfront.rules.yml"), read("prometheus/flashfront.rules.test.yml"));
    let alarms: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alarms.len() >= 15, "{alarms:?}");
    let guide = std::fs::read_to_string(contrib("../docs/guide/monitor.md")).expect("the guide is there");
    for alarm in &alarms {
        assert!(guide.contains(&format!("| `{alarm}` |")), "the guide says nothing of {alarm}");
        // One that goes off, and one of a daemon that is well.
        assert!(tests.contains(&format!("        alertname: {alarm}\n")), "no test of {alarm}");
        assert!(tests.contains(&format!("alertname: {alarm}, exp_alerts: [] ")), "no test of a daemon without {alarm}");
    }
    if skip_without(&["promtool"]) {
        return;
    }
    must(tool("promtool").args(["check", "rules"]).arg(contrib("prometheus/flashfront.rules.yml")));
    must(tool("promtool").args(["test", "rules"]).arg(contrib("prometheus/flashfront.rules.test.yml")));
}

#[test]
fn the_grafana_dashboard_asks_what_prometheus_understands() {
    let dashboard: Value = serde_json::from_str(&read("grafana/flashfront.json")).expect("the dashboard is JSON");
    let mut found = Vec::new();
    expressions(&dashboard["panels"], &mut found);
    assert!(found.len() >= 40, "{} expressions", found.len());
    if skip_without(&["promtool"]) {
        return;
    }
    // As rules that record, since promtool checks the syntax of those.
    let rules: Vec<Value> = (0..)
        .zip(&found)
        .map(|(nth, expression)| {
            let expression = expression.replace("$__rate_interval", "5m");
            serde_json::json!({ "record": format!("panel:{nth}"), "expr": expression })
        })
        .collect();
    let place = Place::new();
    let path = place.file("panels.yml");
    let groups = serde_json::json!({ "groups": [{ "name": "panels", "rules": rules }] });
    std::fs::write(&path, groups.to_string()).expect("the folder is ours");
    must(tool("promtool").args(["check", "rules"]).arg(&path));
}
