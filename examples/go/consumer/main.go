// Prints a topic's messages: consumer NAME_SERVER TOPIC [COUNT]
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strconv"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	count := math.MaxInt
	if len(os.Args) > 3 {
		count, _ = strconv.Atoi(os.Args[3])
	}
	bodies := make(chan string)
	receiver, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{os.Args[1]})),
		consumer.WithGroupName("example-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		log.Fatal(err)
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			bodies <- string(message.Body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := receiver.Subscribe(os.Args[2], consumer.MessageSelector{}, take); err != nil {
		log.Fatal(err)
	}
	if err := receiver.Start(); err != nil {
		log.Fatal(err)
	}
	for ; count > 0; count-- {
		fmt.Println(<-bodies)
	}
	if err := receiver.Shutdown(); err != nil {
		log.Fatal(err)
	}
}
