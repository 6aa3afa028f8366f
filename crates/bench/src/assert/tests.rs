// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a user of `--assert` meets.

use proptest::prelude::*;

use super::*;

fn names() -> Names {
    Names {
        functions: vec![("iops", "requests a second"), ("p99_us", "99 of 100 requests are faster")],
        jobs: ["read", "write", "full 30 min"].map(str::to_owned).to_vec(),
        targets: ["/dev/cached", "ssd", "lvmcache 4.11"].map(str::to_owned).to_vec(),
    }
}

/// iops: 100 (90 to 110) on the first target, 1000 on others; p99_us: 400.
fn measured(figure: &Figure) -> Option<Value> {
    Some(match (figure.function, figure.target.as_str()) {
        ("iops", "/dev/cached") => Value { value: 100.0, low: 90.0, high: 110.0 },
        ("iops", _) => Value::exact(1000.0),
        _ if figure.job == "write" => return None,
        _ => Value::exact(400.0),
    })
}

fn judged(text: &str) -> Judgement {
    Assertion::parse(text, &names()).unwrap_or_else(|error| panic!("{error}")).judge(&measured).unwrap()
}

fn refused(text: &str) -> String {
    Assertion::parse(text, &names()).expect_err(text).to_string()
}

#[test]
fn conditions_hold_or_do_not() {
    for (text, holds) in [
        ("p99_us(read) < 500 and iops(read) > 0.8 * iops(read, ssd)", false),
        ("p99_us(read) < 500 or iops(read) > 0.8 * iops(read, ssd)", true),
        ("not iops(read) > 1e3", true),
        ("not not iops(read)>=100", true),
        ("iops( full 30 min ,lvmcache 4.11 ) <= 1000", true),
        ("iops(\"read\", 'ssd') / iops(read) > 9.9", true),
        ("1 + 2 * 3 < 7.5 and (1 + 2) * 3 > 8.5 and 8 - 4 - 2 < 3 and 8 / 4 / 2 < 1.5", true),
        ("-1 < 0 and - -1 > 0 and 2 * -3 < -5.5", true),
        // `and` binds more than `or`.
        ("1 < 2 or 1 < 2 and 2 < 1", true),
        ("(1 < 2 or 1 < 2) and 2 < 1", false),
        ("(((1)) < (2))", true),
        (".5 < 1. and 1.5E-3 < 1", true),
    ] {
        assert_eq!(judged(text).holds, holds, "{text}");
    }
}

#[test]
fn a_verdict_that_the_spread_leaves_open_is_not_certain() {
    for (text, holds, is_certain) in [
        ("iops(read) > 80", true, true),
        ("iops(read) > 95", true, false),
        ("iops(read) > 105", false, false),
        ("iops(read) > 120", false, true),
        ("not iops(read) > 95", false, false),
        // What is not certain does not matter if the other side decides.
        ("iops(read) > 95 and 2 < 1", false, true),
        ("iops(read) > 95 or 1 < 2", true, true),
        ("iops(read) > 95 or 2 < 1", true, false),
        ("2 * iops(read) - 10 < 205", true, false),
        ("1000 / iops(read) < 12", true, true),
        ("1000 / iops(read) < 11", true, false),
        ("1 / (iops(read) - 105) < 1", true, false),
    ] {
        let judgement = judged(text);
        assert_eq!((judgement.holds, judgement.is_certain), (holds, is_certain), "{text}");
    }
}

#[test]
fn each_comparison_is_told_with_both_sides() {
    let told = judged("p99_us(read) < 500 and iops(read) > 0.8 * iops(read, ssd)").compared;
    let sides: Vec<_> = told.iter().map(|it| (it.left.0.as_str(), it.sign, it.right.0.as_str(), it.holds)).collect();
    assert_eq!(sides, [("p99_us(read)", "<", "500", true), ("iops(read)", ">", "0.8 * iops(read, ssd)", false)]);
    assert_eq!((told[1].left.1.low, told[1].right.1.value), (90.0, 800.0));
}

#[test]
fn what_has_no_value_is_no_verdict() {
    for (text, what) in [
        ("1 < 2 or p99_us(write) < 1", "p99_us(write)"),
        ("1 / (1 - 1) < 2", "1 / (1 - 1)"),
        ("1e308 * 1e308 > 1", "1e308 * 1e308"),
    ] {
        let unmeasured = Assertion::parse(text, &names()).unwrap().judge(&measured).unwrap_err();
        assert_eq!(unmeasured.text, what);
    }
}

#[test]
fn an_error_has_a_caret_at_the_place_and_says_what_there_is() {
    assert_eq!(
        refused("p99_us(read) < 500 and iop(read) > 1"),
        "--assert: no function is called `iop`. Did you mean `iops`? There is iops, p99_us\n  \
         p99_us(read) < 500 and iop(read) > 1\n                         ^^^"
    );
    assert_eq!(
        refused("iops(read, sdd) > 1"),
        "--assert: no target is called `sdd`. Did you mean `ssd`? There is /dev/cached, ssd, lvmcache 4.11\n  \
         iops(read, sdd) > 1\n             ^^^"
    );
    for (text, message, column) in [
        ("", "the condition ends here; expected a number, a function or `(`", 0),
        ("iops(read)", "a number. A condition compares two numbers", 0),
        ("iops(read) > 1 and 2", "a number. A condition", 19),
        ("iops(read) > 500us", "`us` behind a number. A number has no unit here", 16),
        ("iops(read) > 80 % ", "`%` behind a number", 16),
        ("1 < iops(read) < 2", "a second comparison. Join two comparisons with `and`", 15),
        ("iops(read) == 1", "never quite equal", 11),
        ("iops(read) != 1", "never quite equal", 11),
        ("1 < 2 && 2 < 3", "Write `and` or `or`", 6),
        ("(1 < 2", "the condition ends here; expected `)` for the `(` of letter 1", 6),
        ("1 < 2)", "found `)`; expected `and`, `or` or the end", 5),
        ("iops read > 1", "found `r`; expected `(` and the name of a job behind `iops`", 5),
        ("iops() > 1", "found `)`; expected the name of a job: read, write, full 30 min", 5),
        ("iops(red) > 1", "Did you mean `read`?", 5),
        ("iops(read, \"ssd) > 1", "a quote that does not end", 11),
        ("iops(read, ssd, ssd) > 1", "found `,`; expected `)` for the `(` of letter 5", 14),
        ("(1 < 2) + 1 < 2", "a condition, where a number must stand", 0),
        ("1.2.3 < 2", "not a number", 0),
        ("1e999 < 2", "not a number", 0),
        ("\u{e9}\u{e9} < 2", "no function is called", 0),
        ("1 < \u{20ac}", "found `\u{20ac}`; expected a number", 4),
    ] {
        let error = refused(text);
        assert!(error.contains(message), "{text}: {error}");
        let carets = error.lines().last().unwrap();
        assert_eq!(carets.find('^'), Some(column + 2), "{error}");
    }
    let deep = "(".repeat(100_000);
    assert!(refused(&deep).contains("more than 100 parentheses"), "{}", &refused(&deep)[..200]);
    let nots = "not ".repeat(100_000) + "1 < 2";
    assert!(refused(&nots).contains("more than 100 parentheses"));
}

/// Pieces of the language, so that random texts come far.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "iops",
            "(",
            ")",
            "read",
            ",",
            "ssd",
            "<",
            ">=",
            "and",
            "or",
            "not",
            "+",
            "-",
            "*",
            "/",
            "1.5",
            "0",
            " ",
            "\"",
            "'",
            "full 30 min",
            "e",
            ".",
            "\t",
            "\n",
            "p99_us(read)",
            "iops(read, ssd) > 1",
        ])
        .prop_map(str::to_owned),
        any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in prop_oneof![pieces(), any::<String>()]) {
        match Assertion::parse(&text, &names()) {
            Ok(assertion) => drop(assertion.judge(&measured)),
            Err(error) => prop_assert!(error.to_string().contains('^')),
        }
    }

    /// What a condition says without any spread is always certain.
    #[test]
    fn without_a_spread_all_is_certain(text in pieces()) {
        let exact = |figure: &Figure| measured(figure).map(|it| Value::exact(it.value));
        if let Ok(assertion) = Assertion::parse(&text, &names())
            && let Ok(judgement) = assertion.judge(&exact)
        {
            prop_assert!(judgement.is_certain);
        }
    }
}
