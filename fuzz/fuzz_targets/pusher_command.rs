//! Any text is a command or malformed; an answer that quotes it can be read by the same reader.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_wire::pusher::{self, Command, MAX_WATCHLIST};

fuzz_target!(|text: &str| {
    match pusher::command(text) {
        Ok(Command::Client { event, channel, data }) => {
            let relayed = pusher::client_event(&channel, &event, data, Some(&channel));
            let again = Command::Client { event, channel, data };
            assert_eq!(pusher::command(&relayed), Ok(again), "relaying changes nothing");
        }
        Ok(Command::Subscribe { channel, .. }) => {
            let _ = (pusher::check_channel(&channel, 164), pusher::server_to_user(&channel));
            let confirmed = pusher::subscription_succeeded(&channel);
            assert!(matches!(pusher::command(&confirmed), Ok(Command::Other { .. })));
        }
        Ok(Command::Signin { user_data, .. }) => {
            if let Ok(user) = pusher::signed_in(&user_data) {
                assert!(pusher::is_user_id(&user.id) && user.watchlist.len() <= MAX_WATCHLIST);
                let channel = pusher::server_to_user_channel(&user.id);
                assert_eq!(pusher::server_to_user(&channel), Some(&*user.id));
            }
            let success = pusher::signin_success(&user_data);
            assert!(matches!(pusher::command(&success), Ok(Command::Other { .. })));
        }
        Ok(_) => {}
        Err(malformed) => {
            let error = pusher::error(None, &malformed.to_string());
            assert!(matches!(pusher::command(&error), Ok(Command::Other { .. })));
        }
    }
    let event = pusher::event(text, "client-e", text);
    assert!(
        matches!(pusher::command(&event), Ok(Command::Client { channel, .. }) if channel == text)
    );
});
