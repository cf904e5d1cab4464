//! What one user can take: each limit is reached by a user of its own, exactly, while another user goes on.

use std::process::Command;

#[test]
fn users_reach_their_limits_exactly_while_another_goes_on() {
    let done = Command::new(env!("CARGO_BIN_EXE_siga-proof")).arg("quotas").output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}{errors}");
    // ./test prints what was skipped once more.
    println!("{said}");
}
