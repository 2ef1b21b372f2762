use jiff::Timestamp;
use werkruf_contract::{Clock, Uuid};

use super::{CallerSpan, Sampler, error_type, made_at, span_id};

#[test]
fn a_callers_span_is_read_as_the_standard_says() {
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let read = |header: &str| CallerSpan::parse(header);
    let caller = read(&format!("00-{trace_id}-00f067aa0ba902b7-01")).unwrap();
    assert_eq!(u128::from_be_bytes(caller.trace_id), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    assert_eq!((u64::from_be_bytes(caller.span_id), caller.sampled), (0x00f0_67aa_0ba9_02b7, true));
    assert!(!read(&format!("00-{trace_id}-00f067aa0ba902b7-02")).unwrap().sampled);
    assert_eq!(read(&format!("cc-{trace_id}-00f067aa0ba902b7-01-more")), Some(caller), "of a later version");
    for refused in [
        String::new(),
        format!("00-{trace_id}-00f067aa0ba902b7"),
        format!("00-{trace_id}-00f067aa0ba902b7-01-more"),
        format!("ff-{trace_id}-00f067aa0ba902b7-01"),
        format!("00-{trace_id}-0000000000000000-01"),
        format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        format!("00-{}-00f067aa0ba902b7-01", trace_id.to_uppercase()),
        format!("00-{trace_id}-00f067aa0ba902b-01"),
        format!("00-{trace_id}-é0f067aa0ba902b-01"),
    ] {
        assert_eq!(read(&refused), None, "{refused}");
    }
}

#[test]
fn samplers_decide_by_the_trace_and_the_caller() {
    let clock = Clock::system(0);
    let count = |sampler: Sampler, caller| (0..4000).filter(|_| sampler.takes(clock.new_id().into_bytes(), caller)).count();
    let [all, none, some] = [1.0, 0.0, 0.25].map(|ratio| Sampler { ratio, follows_caller: true });
    assert_eq!([count(all, None), count(none, None)], [4000, 0]);
    assert!((600..1400).contains(&count(some, None)), "about a quarter");
    assert_eq!([count(all, Some(false)), count(none, Some(true))], [0, 4000]);
    assert_eq!(count(Sampler { follows_caller: false, ..all }, Some(false)), 4000);
    assert!(all.takes([0xff; 16], None), "also the largest id");
}

#[test]
fn ids_name_spans_and_say_when_they_were_made() {
    let at = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
    let clock = Clock::driven(move || at, 7);
    let (one, two) = (clock.new_id(), clock.new_id());
    assert!(span_id(one) != span_id(two) && span_id(one) != [0; 8]);
    assert_eq!((made_at(one), made_at(Uuid::nil())), (Some(at), None));
}

#[test]
fn an_error_that_is_no_plain_word_is_not_shown() {
    assert_eq!(
        ["tool_timeout", "429", "", "my password", &"x".repeat(65)].map(error_type),
        ["tool_timeout", "429", "_OTHER", "_OTHER", "_OTHER"]
    );
}
