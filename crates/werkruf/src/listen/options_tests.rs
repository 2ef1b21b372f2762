use tokio::net::TcpStream;

use super::*;

#[tokio::test]
async fn an_accepted_connection_inherits_the_options() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    set(&listener, &Bounds::default()).unwrap();
    let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let accepted = SockRef::from(&accepted);
    assert!(accepted.tcp_nodelay().unwrap());
    assert!(accepted.keepalive().unwrap());
    assert_eq!(accepted.tcp_keepalive_time().unwrap(), Duration::from_secs(30));
    assert_eq!(accepted.tcp_keepalive_interval().unwrap(), Duration::from_secs(10));
    assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
    assert_eq!(accepted.tcp_notsent_lowat().unwrap(), UNSENT_BYTES);
}
