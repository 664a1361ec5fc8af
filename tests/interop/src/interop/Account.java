package interop;

import com.alibaba.fastjson.JSONObject;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** Who a client is for a broker with ACL. */
final class Account {
    private Account() { }

    /** access_key, secret_key; token. Null without them: a client that does not sign. */
    static RPCHook hook(JSONObject a) {
        if (!a.containsKey("access_key")) return null;
        return new AclClientRPCHook(new SessionCredentials(a.getString("access_key"), a.getString("secret_key"), a.getString("token")));
    }
}
