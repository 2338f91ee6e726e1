//! All strands at once in the lab's convoy, and every kind of fault once.

mod common;

use common::{namespaces_or_skip, skip};
use lab::field::{Plan, endure};

#[test]
fn all_strands_get_over_every_fault_and_leave_nothing() {
    let name = "all_strands_get_over_every_fault_and_leave_nothing";
    let Some(_alone) = namespaces_or_skip(name) else { return };
    let nawa = env!("CARGO_BIN_EXE_nawa");
    match endure(nawa.as_ref(), Plan::Each, &mut |line| println!("{line}")) {
        Err(error @ (lab::Error::NoMacvtap { .. } | lab::Error::MissingProgram { .. })) => {
            skip(name, &error.to_string())
        }
        result => assert_eq!(result.expect("it completes"), [""; 0]),
    }
}
